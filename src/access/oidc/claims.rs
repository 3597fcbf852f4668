//! What a token with a right signature has to claim.

use serde_json::Value;

use super::keys::Claims;
use super::names::user_name;
use super::{OidcFault, OidcSettings, Verified};
use crate::clock::{Millis, later};

/// Whom `claims` name at the time `now`.
pub(super) fn verified(claims: &Claims, settings: &OidcSettings, now: Millis) -> Result<Verified, OidcFault> {
    if claims.get("iss").and_then(Value::as_str) != Some(settings.issuer.as_str()) {
        return Err(OidcFault::Issuer);
    }
    if !is_for(claims.get("aud"), &settings.audience) {
        return Err(OidcFault::Audience);
    }
    let expires = claims.get("exp").and_then(time).ok_or(OidcFault::Expired)?;
    let expires_at = later(expires, settings.leeway);
    if expires_at <= now {
        return Err(OidcFault::Expired);
    }
    if let Some(from) = claims.get("nbf")
        && time(from).ok_or(OidcFault::Malformed)? > later(now, settings.leeway)
    {
        return Err(OidcFault::NotYet);
    }
    Ok(Verified { user: user(claims, &settings.user_claim)?, roles: roles(claims, settings), expires_at })
}

/// Whether one of `known` is the audience, or among the audiences.
fn is_for(audience: Option<&Value>, known: &[String]) -> bool {
    let is_known = |one: &Value| one.as_str().is_some_and(|one| known.iter().any(|known| known == one));
    match audience {
        Some(Value::Array(many)) => many.iter().any(is_known),
        Some(one) => is_known(one),
        None => false,
    }
}

/// A time, which claims tell in seconds that may have a fraction; one that is too far away is as far as can be.
fn time(claim: &Value) -> Option<Millis> {
    claim.as_f64().map(|seconds| (seconds * 1_000.0) as Millis)
}

fn user(claims: &Claims, claim: &str) -> Result<String, OidcFault> {
    let name = claims.get(claim).and_then(Value::as_str).and_then(user_name).ok_or(OidcFault::User)?;
    let is_verified = match claims.get("email_verified") {
        None | Some(Value::Bool(true)) => true,
        // Some issuers write it as text.
        Some(said) => said == "true",
    };
    if claim == "email" && !is_verified { Err(OidcFault::UnverifiedEmail) } else { Ok(name) }
}

/// The roles of the claim, as an array or with spaces between them. One of another kind gives none.
fn roles(claims: &Claims, settings: &OidcSettings) -> Vec<String> {
    let claim = settings.roles_claim.as_deref().and_then(|name| within(claims, name)).filter(|claim| !claim.is_null());
    let owned = |role: &str| role.to_owned();
    match claim {
        None => settings.default_roles.clone(),
        Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).map(owned).collect(),
        Some(one) => one.as_str().unwrap_or_default().split_whitespace().map(owned).collect(),
    }
}

/// The claim `name`, else the one that the parts of `name` between dots lead to.
fn within<'a>(claims: &'a Claims, name: &str) -> Option<&'a Value> {
    if let Some(claim) = claims.get(name) {
        return Some(claim);
    }
    let mut parts = name.split('.');
    let first = claims.get(parts.next()?)?;
    parts.try_fold(first, |claim, part| claim.get(part))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    const NOW: Millis = 1_800_000_000_000;

    fn settings() -> OidcSettings {
        OidcSettings {
            issuer: "https://id.example".into(),
            audience: vec!["scrollback".into(), "other".into()],
            user_claim: "sub".into(),
            roles_claim: None,
            default_roles: vec!["guest".into()],
            ca: None,
            keys_ttl: Duration::from_secs(3_600),
            leeway: Duration::from_secs(60),
        }
    }

    /// Good claims with `changes`; null takes one away.
    fn of(settings: &OidcSettings, changes: &Value) -> Result<Verified, OidcFault> {
        let good = json!({ "iss": "https://id.example", "aud": "scrollback", "exp": NOW / 1_000 + 300, "sub": "ada" });
        let mut claims = good.as_object().unwrap().clone();
        claims.extend(changes.as_object().unwrap().clone());
        claims.retain(|_, claim| !claim.is_null());
        verified(&claims, settings, NOW)
    }

    fn fault(changes: &Value) -> OidcFault {
        of(&settings(), changes).expect_err("it was taken")
    }

    #[test]
    fn good_claims_name_a_user() {
        let verified = of(&settings(), &json!({})).unwrap();
        let expires_at = NOW + 360_000;
        assert_eq!(verified, Verified { user: "ada".into(), roles: vec!["guest".into()], expires_at });
    }

    #[test]
    fn the_issuer_is_the_same_byte_for_byte() {
        for other in
            [json!(null), json!("https://id.example/"), json!("https://ID.example"), json!(["https://id.example"])]
        {
            assert_eq!(fault(&json!({ "iss": other })), OidcFault::Issuer);
        }
    }

    #[test]
    fn one_audience_is_a_known_one() {
        assert!(of(&settings(), &json!({ "aud": ["x", "other"] })).is_ok());
        for other in
            [json!(null), json!(""), json!([]), json!("scrollback2"), json!(["x", 7]), json!({ "scrollback": 1 })]
        {
            assert_eq!(fault(&json!({ "aud": other })), OidcFault::Audience);
        }
    }

    #[test]
    fn the_expiry_is_needed_and_has_a_leeway() {
        let seconds = NOW / 1_000;
        assert!(of(&settings(), &json!({ "exp": seconds - 59 })).is_ok());
        assert!(of(&settings(), &json!({ "exp": seconds as f64 - 59.5 })).is_ok());
        for gone in
            [json!(seconds - 60), json!(0), json!(-1), json!(-1e300), json!(null), json!("9999999999"), json!(true)]
        {
            assert_eq!(fault(&json!({ "exp": gone })), OidcFault::Expired, "{gone}");
        }
        assert_eq!(of(&settings(), &json!({ "exp": 1e300 })).unwrap().expires_at, Millis::MAX);
    }

    #[test]
    fn a_token_of_later_is_not_taken_yet() {
        let seconds = NOW / 1_000;
        assert!(of(&settings(), &json!({ "nbf": seconds + 60 })).is_ok());
        assert_eq!(fault(&json!({ "nbf": seconds + 61 })), OidcFault::NotYet);
        assert_eq!(fault(&json!({ "nbf": "soon" })), OidcFault::Malformed);
    }

    #[test]
    fn the_user_is_text_that_becomes_a_name() {
        assert_eq!(of(&settings(), &json!({ "sub": "a b" })).unwrap().user, "a%20b");
        for other in [json!(null), json!(""), json!(7), json!(["ada"]), json!("x".repeat(129))] {
            assert_eq!(fault(&json!({ "sub": other })), OidcFault::User);
        }
        let other = OidcSettings { user_claim: "name".into(), ..settings() };
        assert_eq!(of(&other, &json!({ "name": "bob" })).unwrap().user, "bob");
    }

    #[test]
    fn an_email_names_a_user_unless_it_is_not_verified() {
        let by_email = OidcSettings { user_claim: "email".into(), ..settings() };
        let of = |verified: Value| of(&by_email, &json!({ "email": "ada@box.example", "email_verified": verified }));
        for good in [json!(null), json!(true), json!("true")] {
            assert_eq!(of(good).unwrap().user, "ada@box.example");
        }
        for bad in [json!(false), json!("false"), json!(1), json!({})] {
            assert_eq!(of(bad), Err(OidcFault::UnverifiedEmail));
        }
    }

    #[test]
    fn roles_are_a_list_or_words() {
        let with = |claim: &str, changes: Value| {
            let settings = OidcSettings { roles_claim: Some(claim.into()), ..settings() };
            of(&settings, &changes).unwrap().roles
        };
        assert_eq!(with("roles", json!({ "roles": ["admin", 7, "x"] })), ["admin", "x"]);
        assert_eq!(with("roles", json!({ "roles": " admin  member" })), ["admin", "member"]);
        assert_eq!(with("realm.roles", json!({ "realm": { "roles": ["member"] } })), ["member"]);
        assert_eq!(with("https://x.example/roles", json!({ "https://x.example/roles": ["admin"] })), ["admin"]);
        assert_eq!(with("roles", json!({})), ["guest"]);
        for none in [json!([]), json!(""), json!(7), json!({ "admin": true })] {
            assert!(with("roles", json!({ "roles": none })).is_empty());
        }
    }
}
