//! What can be served of the keys of an OpenID Connect issuer.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use reqwest::{Certificate, Url};

use super::Config;

/// The roles that a person of the issuer may be given.
const ROLES: [&str; 3] = ["admin", "member", "guest"];
const MAX_LEEWAY: Duration = Duration::from_secs(10 * 60);
const MIN_KEYS_TTL: Duration = Duration::from_secs(30);
const MAX_KEYS_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// The first value that cannot be served: its key, and why.
pub(super) fn refused(config: &Config) -> Option<(&'static str, String)> {
    let issuer = config.oidc_issuer.as_deref();
    if let Some(problem) = issuer.and_then(issuer_problem) {
        return Some(("oidc_issuer", problem));
    }
    if issuer.is_some() && config.oidc_audience.is_empty() {
        return Some(("oidc_issuer", "needs oidc_audience beside it: for whom its tokens are made".into()));
    }
    let alone = [
        ("oidc_audience", !config.oidc_audience.is_empty()),
        ("oidc_roles_claim", config.oidc_roles_claim.is_some()),
        ("oidc_default_roles", !config.oidc_default_roles.is_empty()),
        ("oidc_ca", config.oidc_ca.is_some()),
    ];
    if let Some((key, _)) = alone.into_iter().find(|(_, is_set)| issuer.is_none() && *is_set) {
        return Some((key, "does nothing without oidc_issuer".into()));
    }
    if config.oidc_audience.iter().any(String::is_empty) {
        return Some(("oidc_audience", "wants texts that are not empty".into()));
    }
    if let Some(role) = config.oidc_default_roles.iter().find(|role| !ROLES.contains(&role.as_str())) {
        return Some(("oidc_default_roles", format!("there is no role {role}; there are {}", ROLES.join(", "))));
    }
    if let Some(Err(problem)) = config.oidc_ca.as_deref().map(authorities) {
        return Some(("oidc_ca", problem));
    }
    if !(MIN_KEYS_TTL..=MAX_KEYS_TTL).contains(&config.oidc_keys_ttl) {
        return Some(("oidc_keys_ttl", "from 30s to 1day".into()));
    }
    (config.oidc_leeway > MAX_LEEWAY).then(|| ("oidc_leeway", "at most 10m".into()))
}

/// Why `issuer` cannot be one.
pub fn issuer_problem(issuer: &str) -> Option<String> {
    let is_plain = |url: &Url| {
        url.username().is_empty() && url.password().is_none() && url.query().is_none() && url.fragment().is_none()
    };
    let is_good = Url::parse(issuer).is_ok_and(|url| is_plain(&url)) && may_be_asked(issuer, issuer);
    let wants = "wants an https:// URL without a name, a query and a fragment, such as https://id.example; http:// on \
                 loopback alone";
    (!is_good).then(|| wants.to_owned())
}

/// Whether what `issuer` says of itself may be read at `url`: encrypted, unless both are on this machine.
pub fn may_be_asked(url: &str, issuer: &str) -> bool {
    let (Ok(url), Ok(issuer)) = (Url::parse(url), Url::parse(issuer)) else { return false };
    let is_host = url.host_str().is_some_and(|host| !host.is_empty());
    is_host && (url.scheme() == "https" || (is_open_loopback(&url) && is_open_loopback(&issuer)))
}

fn is_open_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    url.scheme() == "http" && (host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback()))
}

/// The PEM at `path`, which holds certificates.
///
/// # Errors
/// What is wrong with the file, with its path.
pub fn authorities(path: &Path) -> Result<Vec<u8>, String> {
    let pem = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let count = Certificate::from_pem_bundle(&pem).map_or(0, |certificates| certificates.len());
    if count == 0 { Err(format!("{}: holds no certificates in PEM", path.display())) } else { Ok(pem) }
}

#[cfg(test)]
mod tests {
    use super::super::{Environment, load};
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Result<Config, String> {
        let named: Vec<(String, &str)> =
            variables.iter().map(|(key, value)| (format!("SCROLLBACK_OIDC_{}", key.to_uppercase()), *value)).collect();
        let named: Vec<(&str, &str)> = named.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        load(None, &Environment::of(&named), &[]).map(|loaded| loaded.config).map_err(|fault| fault.to_string())
    }

    #[test]
    fn an_issuer_is_encrypted_or_on_loopback() {
        for good in [
            "https://id.example",
            "https://id.example/tenant/v2.0",
            "https://id.example/",
            "http://localhost:8080",
            "http://127.0.0.1:1/realms/a",
            "http://[::1]:1",
        ] {
            assert_eq!(issuer_problem(good), None, "{good}");
        }
        for bad in [
            "id.example",
            "http://id.example",
            "http://localhost.example",
            "http://127.0.0.1.example",
            "ftp://localhost",
            "https://",
            "https://me@id.example",
            "https://id.example?x=1",
            "https://id.example/#x",
        ] {
            assert!(issuer_problem(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn what_an_issuer_points_at_is_as_safe_as_itself() {
        assert!(may_be_asked("https://keys.example/jwks", "https://id.example"));
        assert!(may_be_asked("http://127.0.0.1:2/jwks", "http://localhost:1"));
        assert!(!may_be_asked("http://127.0.0.1:2/jwks", "https://id.example"));
        assert!(!may_be_asked("http://keys.example/jwks", "http://localhost:1"));
        assert!(!may_be_asked("file:///etc/passwd", "http://localhost:1"));
        assert!(!may_be_asked("/jwks", "https://id.example"));
    }

    #[test]
    fn a_message_names_what_is_wrong() {
        let good = [("issuer", "https://id.example"), ("audience", "a")];
        assert!(of(&good).is_ok());
        let with = |key, value| of(&[good[0], good[1], (key, value)]).unwrap_err();
        assert!(of(&[("issuer", "http://id.example")]).unwrap_err().starts_with("SCROLLBACK_OIDC_ISSUER: wants"));
        let lonely = of(&good[..1]).unwrap_err();
        assert_eq!(lonely, "SCROLLBACK_OIDC_ISSUER: needs oidc_audience beside it: for whom its tokens are made");
        for (key, value) in [("audience", "a"), ("roles_claim", "r"), ("default_roles", "guest"), ("ca", "/x.pem")] {
            let name = format!("SCROLLBACK_OIDC_{}", key.to_uppercase());
            assert_eq!(of(&[(key, value)]).unwrap_err(), format!("{name}: does nothing without oidc_issuer"));
        }
        assert_eq!(
            with("default_roles", "guest, root"),
            "SCROLLBACK_OIDC_DEFAULT_ROLES: there is no role root; there are admin, member, guest"
        );
        assert_eq!(with("keys_ttl", "1s"), "SCROLLBACK_OIDC_KEYS_TTL: from 30s to 1day");
        assert_eq!(with("leeway", "1h"), "SCROLLBACK_OIDC_LEEWAY: at most 10m");
        assert!(with("ca", "/no/such/file").starts_with("SCROLLBACK_OIDC_CA: /no/such/file: "));
        let empty = tempfile::NamedTempFile::new().unwrap();
        assert!(with("ca", empty.path().to_str().unwrap()).ends_with("holds no certificates in PEM"));
    }
}
