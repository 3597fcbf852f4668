//! The keys that an issuer publishes, and the one that a token was signed with.

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode};
use serde_json::{Map, Value};

use super::OidcFault;
use super::head::Head;

/// What a token claims.
pub(super) type Claims = Map<String, Value>;

/// The keys that signatures may be checked with.
pub(super) struct KeySet {
    keys: Vec<Key>,
}

struct Key {
    kid: Option<String>,
    /// The one algorithm that it is for, where it says so.
    algorithm: Option<KeyAlgorithm>,
    kind: Kind,
    key: DecodingKey,
}

#[derive(Clone, Copy)]
enum Kind {
    Rsa,
    P256,
    P384,
    Ed25519,
}

impl KeySet {
    /// The usable keys among `published`. One that is for something else, or is not understood, is as if it were not
    /// there: issuers publish more than one reader knows.
    pub fn of(published: Vec<Value>) -> Self {
        Self { keys: published.into_iter().filter_map(Key::of).collect() }
    }

    /// The claims of `token`, whose signature is right. Nothing of them is checked yet.
    pub fn check(&self, token: &str, head: &Head) -> Result<Claims, OidcFault> {
        let key = self.find(head)?;
        // Times and names are checked by hand: the crate would ask the machine's clock.
        let mut only_the_signature = Validation::new(head.algorithm);
        only_the_signature.required_spec_claims.clear();
        only_the_signature.validate_exp = false;
        only_the_signature.validate_nbf = false;
        only_the_signature.validate_aud = false;
        let decoded = decode::<Claims>(token, &key.key, &only_the_signature);
        decoded.map(|decoded| decoded.claims).map_err(|error| match error.kind() {
            ErrorKind::InvalidSignature => OidcFault::Signature,
            ErrorKind::InvalidAlgorithm => OidcFault::Algorithm,
            _ => OidcFault::Malformed,
        })
    }

    /// The one key that `head` names and that its algorithm fits; where it names none, the only one that fits.
    fn find(&self, head: &Head) -> Result<&Key, OidcFault> {
        let is_named = |key: &&Key| head.kid.is_none() || key.kid == head.kid;
        let mut fitting = self.keys.iter().filter(is_named).filter(|key| key.fits(head.algorithm));
        match (fitting.next(), fitting.next()) {
            (Some(key), None) => Ok(key),
            (Some(_), Some(_)) => Err(OidcFault::AmbiguousKey),
            (None, _) if head.kid.is_some() && self.keys.iter().any(|key| is_named(&key)) => Err(OidcFault::Algorithm),
            (None, _) => Err(OidcFault::UnknownKey),
        }
    }
}

impl Key {
    fn of(published: Value) -> Option<Self> {
        let jwk: Jwk = serde_json::from_value(published).ok()?;
        let is_for_signatures = matches!(jwk.common.public_key_use, None | Some(PublicKeyUse::Signature));
        let operations = jwk.common.key_operations.as_ref();
        if !is_for_signatures || operations.is_some_and(|operations| !operations.contains(&KeyOperations::Verify)) {
            return None;
        }
        let kind = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => Kind::Rsa,
            AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => Kind::P256,
            AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P384 => Kind::P384,
            AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => Kind::Ed25519,
            _ => return None,
        };
        let key = DecodingKey::from_jwk(&jwk).ok()?;
        Some(Self { kid: jwk.common.key_id, algorithm: jwk.common.key_algorithm, kind, key })
    }

    fn fits(&self, algorithm: Algorithm) -> bool {
        let is_kind = match self.kind {
            Kind::P256 => algorithm == Algorithm::ES256,
            Kind::P384 => algorithm == Algorithm::ES384,
            Kind::Ed25519 => algorithm == Algorithm::EdDSA,
            Kind::Rsa => matches!(
                algorithm,
                Algorithm::RS256
                    | Algorithm::RS384
                    | Algorithm::RS512
                    | Algorithm::PS256
                    | Algorithm::PS384
                    | Algorithm::PS512
            ),
        };
        is_kind && self.algorithm.is_none_or(|only| only.to_string().parse() == Ok(algorithm))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The generator of P-256 as a public key.
    fn p256(more: &Value) -> Value {
        let mut key = json!({
            "kty": "EC",
            "crv": "P-256",
            "x": "axfR8uEsQkf4vOblY6RA8ncDfYEt6zOg9KE5RdiYwpY",
            "y": "T-NC4v4af5uO5-tKfA-eFivOM1drMV7Oy7ZAaDe_UfU",
        });
        key.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        key
    }

    fn find(published: Vec<Value>, algorithm: Algorithm, kid: Option<&str>) -> Result<(), OidcFault> {
        let head = Head { algorithm, kid: kid.map(str::to_owned) };
        KeySet::of(published).find(&head).map(|_| ())
    }

    #[test]
    fn a_key_is_found_by_its_name() {
        let keys = || vec![p256(&json!({ "kid": "a" })), p256(&json!({ "kid": "b" }))];
        assert_eq!(find(keys(), Algorithm::ES256, Some("b")), Ok(()));
        assert_eq!(find(keys(), Algorithm::ES256, Some("c")), Err(OidcFault::UnknownKey));
        assert_eq!(find(keys(), Algorithm::ES384, Some("a")), Err(OidcFault::Algorithm));
        assert_eq!(find(vec![p256(&json!({}))], Algorithm::ES256, Some("a")), Err(OidcFault::UnknownKey));
    }

    #[test]
    fn without_a_name_only_one_key_may_fit() {
        let rsa = || json!({ "kty": "RSA", "n": "AQAB", "e": "AQAB" });
        let one = || vec![p256(&json!({ "kid": "a" })), rsa()];
        assert_eq!(find(one(), Algorithm::ES256, None), Ok(()));
        assert_eq!(find(one(), Algorithm::EdDSA, None), Err(OidcFault::UnknownKey));
        let two = vec![p256(&json!({})), p256(&json!({ "kid": "b" }))];
        assert_eq!(find(two, Algorithm::ES256, None), Err(OidcFault::AmbiguousKey));
    }

    #[test]
    fn a_key_says_what_it_is_for() {
        for other in [
            json!({ "use": "enc" }),
            json!({ "use": "other" }),
            json!({ "key_ops": ["encrypt"] }),
            json!({ "alg": "HS256" }),
            json!({ "alg": "RS256" }),
            json!({ "alg": "RSA-OAEP" }),
            json!({ "alg": "unheard of" }),
            json!({ "crv": "P-521" }),
            json!({ "kty": "oct", "k": "c2VjcmV0" }),
            json!({ "x": "no base64" }),
        ] {
            assert_eq!(find(vec![p256(&other)], Algorithm::ES256, None), Err(OidcFault::UnknownKey), "{other}");
        }
        let good = json!({ "use": "sig", "key_ops": ["verify"], "alg": "ES256" });
        assert_eq!(find(vec![json!(7), json!({}), p256(&good)], Algorithm::ES256, None), Ok(()));
    }
}
