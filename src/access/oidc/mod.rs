//! Bearer tokens of an OpenID Connect issuer.
//!
//! Used by the gate, which asks [`Issuer::verify`] who a token names. The issuer is asked for its public keys and never
//! about a token, which is its own proof until it expires.
//!
//! Always: only signatures of asymmetric algorithms count, the algorithm has to fit the key that the issuer publishes, and
//! no key comes from a token. Neither a token nor what it claims is logged or told in a fault. Left out on purpose:
//! revocation, which such tokens do not have, and what a role may do.
//! Source: OpenID Connect Core 1.0 and Discovery 1.0; RFC 7515, 7517, 7519 and 8725.

mod cache;
mod claims;
mod head;
mod keys;
mod names;
mod source;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use self::cache::Keys;
use self::head::Head;
use self::source::Source;
use crate::clock::{Clock, Millis};
use crate::config::Config;

pub use self::names::user_name;

/// The longest token that is read, in bytes.
pub const MAX_TOKEN: usize = 16 << 10;

/// What is known of an issuer before it is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OidcSettings {
    /// Its URL, which the `iss` of its tokens has to equal byte for byte.
    pub issuer: String,
    /// Whom its tokens may be for; one of them has to be in `aud`.
    pub audience: Vec<String>,
    /// The claim that names the person.
    pub user_claim: String,
    /// The claim that holds the person's roles: its name, or names within each other with dots between them.
    pub roles_claim: Option<String>,
    /// The roles of those whose token does not have that claim.
    pub default_roles: Vec<String>,
    /// A PEM file of the only authorities that the issuer's certificate may come from; `None`: those of the machine.
    pub ca: Option<PathBuf>,
    /// How old the issuer's keys may become before it is asked again.
    pub keys_ttl: Duration,
    /// How far the clocks of the issuer and of this host may be apart.
    pub leeway: Duration,
}

impl OidcSettings {
    /// What is configured; `None` where no issuer is.
    pub fn of(config: &Config) -> Option<Self> {
        Some(Self {
            issuer: config.oidc_issuer.clone()?,
            audience: config.oidc_audience.clone(),
            user_claim: config.oidc_user_claim.clone(),
            roles_claim: config.oidc_roles_claim.clone(),
            default_roles: config.oidc_default_roles.clone(),
            ca: config.oidc_ca.clone(),
            keys_ttl: config.oidc_keys_ttl,
            leeway: config.oidc_leeway,
        })
    }
}

/// Whom a token names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// A name that a person can have: the value of the user claim as [`user_name`] writes it.
    pub user: String,
    /// What the token says of roles, known to this host or not.
    pub roles: Vec<String>,
    /// When the token is no longer taken: its `exp` and the leeway.
    pub expires_at: Millis,
}

/// Why a token is not taken. Nothing of the token is in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OidcFault {
    /// The issuer cannot be served as it is configured.
    #[error("{key}: {problem}")]
    Settings { key: &'static str, problem: String },
    /// Nothing is wrong with the token as far as is known: the keys that would tell are not to be had.
    #[error("the issuer of tokens cannot be asked for its keys")]
    Unreachable,
    #[error("the token is longer than 16 KiB")]
    TooLong,
    #[error("the token is not well formed")]
    Malformed,
    #[error("the token is signed in a way that is not taken, or that does not fit the issuer's key")]
    Algorithm,
    #[error("the token is signed with a key that the issuer does not publish")]
    UnknownKey,
    #[error("the token names no key, and the issuer publishes several that fit")]
    AmbiguousKey,
    #[error("the token's signature is wrong")]
    Signature,
    #[error("the token is of another issuer")]
    Issuer,
    #[error("the token is for another audience")]
    Audience,
    #[error("the token has expired, or does not say when it does")]
    Expired,
    #[error("the token is not valid yet")]
    NotYet,
    #[error("the token does not name its user in the claim that this host reads")]
    User,
    #[error("the token's email address is not verified")]
    UnverifiedEmail,
}

/// An issuer and the keys that it was last seen with. Cheap to clone; all clones share the keys.
#[derive(Clone)]
pub struct Issuer {
    settings: Arc<OidcSettings>,
    clock: Clock,
    keys: Keys,
}

impl Issuer {
    /// An issuer that is not asked anything yet: that is done when the first token comes.
    ///
    /// # Errors
    /// [`OidcFault::Settings`] with the key of the configuration that cannot be served.
    pub fn new(settings: OidcSettings, clock: Clock) -> Result<Self, OidcFault> {
        if settings.audience.is_empty() {
            let problem = "is needed where oidc_issuer is set".to_owned();
            return Err(OidcFault::Settings { key: "oidc_audience", problem });
        }
        let source = Source::new(&settings.issuer, settings.ca.as_deref())?;
        let keys = Keys::new(source, clock.clone(), settings.keys_ttl);
        Ok(Self { settings: Arc::new(settings), clock, keys })
    }

    /// Whether `token` has the form of a signed one: three parts in base64url, with dots between them.
    pub fn looks_like(token: &str) -> bool {
        let is_part = |part: &str| {
            !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        };
        token.split('.').count() == 3 && token.split('.').all(is_part)
    }

    /// Whom `token` names. Asks the issuer for its keys where they are old or lack the one that is needed. Needs the
    /// runtime of tokio.
    ///
    /// # Errors
    /// [`OidcFault::Unreachable`] where the keys are not to be had, else what is wrong with the token.
    pub async fn verify(&self, token: &str) -> Result<Verified, OidcFault> {
        if token.len() > MAX_TOKEN {
            return Err(OidcFault::TooLong);
        }
        let head = Head::of(token)?;
        let keys = self.keys.current().await?;
        let claims = match keys.check(token, &head) {
            Err(fault) if is_of_new_key(&fault, &head) => {
                self.keys.other_than(&keys).await?.ok_or(fault)?.check(token, &head)?
            }
            checked => checked?,
        };
        claims::verified(&claims, &self.settings, self.clock.now())
    }
}

impl fmt::Debug for Issuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issuer").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// Whether newer keys may be better ones: where a token names no key, a changed one shows in its signature alone.
fn is_of_new_key(fault: &OidcFault, head: &Head) -> bool {
    *fault == OidcFault::UnknownKey || (*fault == OidcFault::Signature && head.kid.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Environment, load};

    #[test]
    fn a_signed_token_has_three_parts_in_base64url() {
        assert!(Issuer::looks_like("eyJh.eyJi-_.c2ln"));
        for other in ["", "a.b", "a.b.c.d", "a.b.", ".b.c", "a.b.c=", "a.b c.d", "a.b.c/d"] {
            assert!(!Issuer::looks_like(other), "{other}");
        }
    }

    #[test]
    fn the_settings_are_those_of_the_configuration() {
        let of = |variables: &[(&str, &str)]| {
            OidcSettings::of(&load(None, &Environment::of(variables), &[]).unwrap().config)
        };
        assert_eq!(of(&[]), None);
        let settings = of(&[
            ("SCROLLBACK_OIDC_ISSUER", "https://id.example"),
            ("SCROLLBACK_OIDC_AUDIENCE", "scrollback, other"),
            ("SCROLLBACK_OIDC_LEEWAY", "5s"),
        ]);
        let settings = settings.unwrap();
        assert_eq!(settings.issuer, "https://id.example");
        assert_eq!(settings.audience, ["scrollback", "other"]);
        assert_eq!((settings.user_claim.as_str(), settings.roles_claim), ("sub", None));
        assert_eq!((settings.keys_ttl, settings.leeway), (Duration::from_secs(3_600), Duration::from_secs(5)));
    }
}
