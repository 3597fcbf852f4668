//! The head of a token: what it says of its own signature, before anything of it is believed.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::Algorithm;
use serde::Deserialize;
use serde_json::Value;

use super::OidcFault;

/// What is read of a head. Keys that it carries or points at (`jwk`, `jku`, `x5c`) are not looked at.
#[derive(Debug)]
pub(super) struct Head {
    pub algorithm: Algorithm,
    pub kid: Option<String>,
}

#[derive(Deserialize)]
struct Written {
    alg: String,
    kid: Option<String>,
    /// What the reader has to understand; there is nothing of that kind here.
    crit: Option<Value>,
}

impl Head {
    /// The head of `token`.
    pub fn of(token: &str) -> Result<Self, OidcFault> {
        let first = token.split('.').next().unwrap_or_default();
        let bytes = URL_SAFE_NO_PAD.decode(first).map_err(|_| OidcFault::Malformed)?;
        let written: Written = serde_json::from_slice(&bytes).map_err(|_| OidcFault::Malformed)?;
        if written.crit.is_some() {
            return Err(OidcFault::Malformed);
        }
        let algorithm = written.alg.parse().ok().filter(|algorithm| is_asymmetric(*algorithm));
        Ok(Self { algorithm: algorithm.ok_or(OidcFault::Algorithm)?, kid: written.kid })
    }
}

/// A symmetric algorithm would take a public key for a secret.
fn is_asymmetric(algorithm: Algorithm) -> bool {
    !matches!(algorithm, Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(head: &str) -> Result<Head, OidcFault> {
        Head::of(&format!("{}.e30.c2ln", URL_SAFE_NO_PAD.encode(head)))
    }

    #[test]
    fn asymmetric_algorithms_are_taken() {
        for algorithm in ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"] {
            let head = of(&format!(r#"{{"alg":"{algorithm}","kid":"a"}}"#)).unwrap();
            assert_eq!((format!("{:?}", head.algorithm).as_str(), head.kid.as_deref()), (algorithm, Some("a")));
        }
    }

    #[test]
    fn none_and_secrets_and_other_words_are_not() {
        for algorithm in ["none", "None", "NONE", "", "HS256", "HS384", "HS512", "ES512", "rs256", "RSA-OAEP"] {
            let fault = of(&format!(r#"{{"alg":"{algorithm}"}}"#)).unwrap_err();
            assert_eq!(fault, OidcFault::Algorithm, "{algorithm}");
        }
    }

    #[test]
    fn a_head_that_cannot_be_read_is_refused() {
        let critical = r#"{"alg":"ES256","crit":["b64"],"b64":false}"#;
        for head in ["", "{}", "[]", "null", r#"{"alg":1}"#, r#"{"alg":"ES256","kid":7}"#, critical] {
            assert_eq!(of(head).unwrap_err(), OidcFault::Malformed, "{head}");
        }
        for token in ["", ".", "..", "%%.e30.c2ln", "no token"] {
            assert_eq!(Head::of(token).unwrap_err(), OidcFault::Malformed, "{token}");
        }
    }
}
