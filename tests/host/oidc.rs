//! Bearer tokens of an OpenID Connect issuer, which runs here.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::future::join_all;
use jsonwebtoken::{Algorithm, EncodingKey};
use scrollback::access::oidc::{Issuer, MAX_TOKEN, OidcFault, OidcSettings, Verified};
use scrollback::clock::{Clock, Millis};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::harness::issuer::{FakeIssuer, Odd, Page, SigningKey, settings};

/// 2027-01-15T08:00:00Z.
const NOW: Millis = 1_800_000_000_000;
const MINUTE: Millis = 60_000;

/// An issuer that runs, a reader of its tokens, and the clock of both.
struct Pair {
    fake: FakeIssuer,
    issuer: Issuer,
    clock: Clock,
}

impl Pair {
    /// With these keys published.
    fn of(keys: &[&SigningKey]) -> Self {
        let (fake, clock) = (FakeIssuer::start(), Clock::fixed(NOW));
        fake.publishes(keys);
        let issuer = Issuer::new(settings(&fake.url), clock.clone()).unwrap();
        Self { fake, issuer, clock }
    }

    /// Good claims for a week, with `changes`.
    fn claims(&self, changes: &Value) -> Value {
        let exp = NOW / 1_000 + 7 * 24 * 3_600;
        let mut claims = json!({ "iss": self.fake.url, "aud": "scrollback", "exp": exp, "sub": "ada" });
        claims.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        claims
    }

    fn token(&self, key: &SigningKey) -> String {
        key.token(&self.claims(&json!({})))
    }

    async fn verify(&self, token: &str) -> Result<Verified, OidcFault> {
        self.issuer.verify(token).await
    }

    async fn user(&self, key: &SigningKey) -> Result<String, OidcFault> {
        self.verify(&self.token(key)).await.map(|verified| verified.user)
    }

    async fn fault(&self, token: &str) -> OidcFault {
        self.verify(token).await.expect_err("the token was taken")
    }

    fn asked(&self) -> (usize, usize) {
        (self.fake.asked(Page::Configuration), self.fake.asked(Page::Keys))
    }
}

fn es256(kid: &str) -> SigningKey {
    SigningKey::new(Algorithm::ES256, Some(kid))
}

#[tokio::test]
async fn a_token_of_each_algorithm_names_its_user_and_its_roles() {
    let algorithms = [
        Algorithm::RS256,
        Algorithm::RS384,
        Algorithm::RS512,
        Algorithm::PS256,
        Algorithm::PS384,
        Algorithm::PS512,
        Algorithm::ES256,
        Algorithm::ES384,
        Algorithm::EdDSA,
    ];
    let keys: Vec<SigningKey> =
        algorithms.iter().map(|algorithm| SigningKey::new(*algorithm, Some(&format!("{algorithm:?}")))).collect();
    let pair = Pair::of(&keys.iter().collect::<Vec<_>>());
    for key in &keys {
        let token = key.token(&pair.claims(&json!({ "roles": ["member", "x"], "exp": NOW / 1_000 + 60 })));
        assert!(Issuer::looks_like(&token));
        let verified = pair.verify(&token).await.unwrap_or_else(|fault| panic!("{:?}: {fault}", key.algorithm));
        let expires_at = NOW + 2 * MINUTE;
        assert_eq!(verified, Verified { user: "ada".into(), roles: vec!["member".into(), "x".into()], expires_at });
    }
    assert_eq!(pair.asked(), (1, 1));
}

#[tokio::test]
async fn a_token_without_a_signature_is_refused() {
    let key = es256("a");
    let pair = Pair::of(&[&key]);
    let claims = pair.claims(&json!({}));
    for alg in ["none", "None", "NONE"] {
        let token = key.token_with_head(&json!({ "alg": alg, "kid": "a" }), &claims);
        assert_eq!(pair.fault(&token).await, OidcFault::Algorithm);
        let bare = format!("{}.", token.rsplit_once('.').unwrap().0);
        assert_eq!(pair.fault(&bare).await, OidcFault::Algorithm);
        assert!(!Issuer::looks_like(&bare));
    }
    let good = pair.token(&key);
    assert_eq!(pair.fault(&format!("{}.", good.rsplit_once('.').unwrap().0)).await, OidcFault::Signature);
}

#[tokio::test]
async fn a_public_key_is_never_taken_for_a_secret() {
    let key = SigningKey::new(Algorithm::RS256, Some("a"));
    let pair = Pair::of(&[&key]);
    let modulus = key.public["n"].as_str().unwrap();
    let pem = rcgen::KeyPair::from_pem(include_str!("../fixtures/oidc/rsa-test-key.pem")).unwrap().public_key_pem();
    for secret in [pem.as_bytes().to_vec(), modulus.into(), URL_SAFE_NO_PAD.decode(modulus).unwrap()] {
        let mut head = jsonwebtoken::Header::new(Algorithm::HS256);
        head.kid = Some("a".into());
        let claims = pair.claims(&json!({}));
        let token = jsonwebtoken::encode(&head, &claims, &EncodingKey::from_secret(&secret)).unwrap();
        assert_eq!(pair.fault(&token).await, OidcFault::Algorithm);
    }
}

#[tokio::test]
async fn a_secret_among_the_keys_is_not_used() {
    let pair = Pair::of(&[]);
    let secret = json!({ "kty": "oct", "k": URL_SAFE_NO_PAD.encode("secret"), "kid": "s" });
    pair.fake.publishes_as_written(vec![secret]);
    let mut head = jsonwebtoken::Header::new(Algorithm::HS256);
    head.kid = Some("s".into());
    let token = jsonwebtoken::encode(&head, &pair.claims(&json!({})), &EncodingKey::from_secret(b"secret")).unwrap();
    assert_eq!(pair.fault(&token).await, OidcFault::Algorithm);
}

#[tokio::test]
async fn the_algorithm_has_to_fit_the_key() {
    let (ec, rsa) = (es256("ec"), SigningKey::new(Algorithm::RS256, Some("rsa")));
    let pair = Pair::of(&[&ec, &rsa]);
    let claims = pair.claims(&json!({}));
    for (key, alg, kid) in [(&rsa, "RS256", "ec"), (&rsa, "PS256", "rsa"), (&rsa, "RS512", "rsa"), (&ec, "ES384", "ec")]
    {
        let token = key.token_with_head(&json!({ "alg": alg, "kid": kid }), &claims);
        assert_eq!(pair.fault(&token).await, OidcFault::Algorithm, "{alg} {kid}");
    }
    // A key that does not say which algorithm it is for is for all of its kind.
    let mut any = rsa.public.clone();
    any.as_object_mut().unwrap().remove("alg");
    let pair = Pair::of(&[]);
    pair.fake.publishes_as_written(vec![any]);
    for algorithm in [Algorithm::RS256, Algorithm::PS512] {
        assert!(pair.user(&SigningKey::new(algorithm, Some("rsa"))).await.is_ok());
    }
}

#[tokio::test]
async fn a_changed_or_foreign_signature_is_refused() {
    let (key, other) = (es256("a"), es256("a"));
    let pair = Pair::of(&[&key]);
    assert_eq!(pair.fault(&pair.token(&other)).await, OidcFault::Signature);
    let token = pair.token(&key);
    let parts: Vec<&str> = token.split('.').collect();
    let claims = URL_SAFE_NO_PAD.encode(pair.claims(&json!({ "sub": "root" })).to_string());
    assert_eq!(pair.fault(&[parts[0], &claims, parts[2]].join(".")).await, OidcFault::Signature);
    for token in [format!("{token}.x"), format!("{token}="), parts[..2].join("."), String::new()] {
        assert_eq!(pair.fault(&token).await, OidcFault::Malformed, "{token}");
    }
    let critical = json!({ "alg": "ES256", "kid": "a", "crit": ["exp"] });
    assert_eq!(pair.fault(&key.token_with_head(&critical, &pair.claims(&json!({})))).await, OidcFault::Malformed);
}

#[tokio::test]
async fn a_key_that_a_token_brings_itself_is_not_used() {
    let (key, own) = (es256("a"), es256("mine"));
    let pair = Pair::of(&[&key]);
    let head = json!({ "alg": "ES256", "jwk": own.public, "jku": "http://localhost:1/keys", "kid": "a" });
    assert_eq!(pair.fault(&own.token_with_head(&head, &pair.claims(&json!({})))).await, OidcFault::Signature);
}

#[tokio::test]
async fn claims_of_another_issuer_audience_or_time_are_refused() {
    let key = es256("a");
    let pair = Pair::of(&[&key]);
    let seconds = NOW / 1_000;
    for (changes, fault) in [
        (json!({ "iss": "https://id.example" }), OidcFault::Issuer),
        (json!({ "iss": format!("{}/", pair.fake.url) }), OidcFault::Issuer),
        (json!({ "aud": "other" }), OidcFault::Audience),
        (json!({ "aud": null }), OidcFault::Audience),
        (json!({ "exp": seconds - 61 }), OidcFault::Expired),
        (json!({ "exp": null }), OidcFault::Expired),
        (json!({ "nbf": seconds + 61 }), OidcFault::NotYet),
        (json!({ "sub": null }), OidcFault::User),
    ] {
        assert_eq!(pair.fault(&key.token(&pair.claims(&changes))).await, fault, "{changes}");
    }
    assert_eq!(pair.user(&key).await.as_deref(), Ok("ada"));
    pair.clock.advance(7 * 24 * 60 * MINUTE + MINUTE);
    assert_eq!(pair.user(&key).await, Err(OidcFault::Expired));
}

#[tokio::test]
async fn a_token_that_is_too_long_is_not_read() {
    let key = es256("a");
    let pair = Pair::of(&[&key]);
    let of = |bytes: usize| key.token(&pair.claims(&json!({ "more": "x".repeat(bytes) })));
    assert!(pair.verify(&of(MAX_TOKEN / 2)).await.is_ok());
    assert_eq!(pair.fault(&of(MAX_TOKEN)).await, OidcFault::TooLong);
}

#[tokio::test]
async fn keys_for_encryption_check_no_signature() {
    let key = es256("a");
    let pair = Pair::of(&[]);
    let mut public = key.public.clone();
    public["use"] = json!("enc");
    pair.fake.publishes_as_written(vec![public]);
    assert_eq!(pair.user(&key).await, Err(OidcFault::UnknownKey));
}

#[tokio::test]
async fn a_token_that_names_no_key_needs_a_single_one_that_fits() {
    let nameless = SigningKey::new(Algorithm::ES256, None);
    let (other, rsa) = (es256("b"), SigningKey::new(Algorithm::RS256, Some("c")));
    assert!(Pair::of(&[&nameless, &rsa]).user(&nameless).await.is_ok());
    assert_eq!(Pair::of(&[&nameless, &other]).user(&nameless).await, Err(OidcFault::AmbiguousKey));
}

#[tokio::test]
async fn a_flood_of_unknown_keys_asks_the_issuer_once() {
    let key = es256("a");
    let pair = Pair::of(&[&key]);
    assert!(pair.user(&key).await.is_ok());
    pair.clock.advance(MINUTE);
    let claims = pair.claims(&json!({}));
    let flood = || {
        let token = |n: usize| key.token_with_head(&json!({ "alg": "ES256", "kid": format!("unknown{n}") }), &claims);
        let tokens: Vec<String> = (0..50).map(token).collect();
        let issuer = pair.issuer.clone();
        async move { join_all(tokens.iter().map(|token| issuer.verify(token))).await }
    };
    for _ in 0..2 {
        assert!(flood().await.into_iter().all(|verified| verified == Err(OidcFault::UnknownKey)));
        assert_eq!(pair.asked(), (2, 2));
    }
    assert!(pair.user(&key).await.is_ok());
    pair.clock.advance(MINUTE / 2);
    flood().await;
    assert_eq!(pair.asked(), (3, 3));
}

#[tokio::test]
async fn those_who_come_while_the_issuer_is_asked_wait_for_the_one_answer() {
    let key = es256("a");
    let pair = Pair::of(&[&key]);
    let told = Arc::new(Notify::new());
    pair.fake.answers(Page::Keys, Some(Odd::After(Arc::clone(&told))));
    let token = pair.token(&key);
    let first = tokio::spawn({
        let (issuer, token) = (pair.issuer.clone(), token.clone());
        async move { issuer.verify(&token).await }
    });
    while pair.asked().1 == 0 {
        tokio::task::yield_now().await;
    }
    // The one that began it goes away.
    first.abort();
    let others = join_all((0..5).map(|_| pair.verify(&token)));
    let (others, ()) = tokio::join!(others, async { told.notify_one() });
    assert!(others.iter().all(Result::is_ok));
    assert_eq!(pair.asked(), (1, 1));
}

#[tokio::test]
async fn new_keys_are_found_when_a_token_names_one() {
    let (old, new) = (es256("old"), es256("new"));
    let pair = Pair::of(&[&old]);
    assert!(pair.user(&old).await.is_ok());
    pair.fake.publishes(&[&new]);
    assert_eq!(pair.user(&new).await, Err(OidcFault::UnknownKey), "the issuer was asked just now");
    pair.clock.advance(MINUTE);
    assert!(pair.user(&new).await.is_ok());
    assert_eq!(pair.user(&old).await, Err(OidcFault::UnknownKey));
}

#[tokio::test]
async fn a_new_key_without_a_name_is_found_too() {
    let (old, new) = (SigningKey::new(Algorithm::ES256, None), SigningKey::new(Algorithm::ES256, None));
    let pair = Pair::of(&[&old]);
    assert!(pair.user(&old).await.is_ok());
    pair.fake.publishes(&[&new]);
    pair.clock.advance(MINUTE);
    assert!(pair.user(&new).await.is_ok());
}

#[tokio::test]
async fn keys_that_are_published_no_more_are_forgotten_in_time() {
    let (old, new) = (es256("old"), es256("new"));
    let pair = Pair::of(&[&old]);
    assert!(pair.user(&old).await.is_ok());
    pair.fake.publishes(&[&new]);
    pair.clock.advance(59 * MINUTE);
    assert!(pair.user(&old).await.is_ok());
    pair.clock.advance(MINUTE);
    assert_eq!(pair.user(&old).await, Err(OidcFault::UnknownKey));
}

#[tokio::test]
async fn known_keys_serve_for_a_day_while_the_issuer_is_down() {
    let key = es256("a");
    let pair = Pair::of(&[&key]);
    assert!(pair.user(&key).await.is_ok());
    pair.fake.answers(Page::Configuration, Some(Odd::Status(500)));
    pair.clock.advance(23 * 60 * MINUTE);
    assert!(pair.user(&key).await.is_ok());
    assert!(pair.user(&key).await.is_ok());
    assert_eq!(pair.asked(), (2, 1), "it is left alone for a while");
    assert_eq!(pair.user(&es256("unknown")).await, Err(OidcFault::Unreachable));
    pair.clock.advance(60 * MINUTE);
    assert_eq!(pair.user(&key).await, Err(OidcFault::Unreachable));
    pair.fake.answers(Page::Configuration, None);
    assert_eq!(pair.user(&key).await, Err(OidcFault::Unreachable));
    pair.clock.advance(MINUTE);
    assert!(pair.user(&key).await.is_ok());
}

#[tokio::test]
async fn an_issuer_that_is_not_there_is_unreachable() {
    let key = es256("a");
    let Pair { fake, issuer, clock } = Pair::of(&[&key]);
    let url = fake.url.clone();
    drop(fake);
    let token = key.token(&json!({ "iss": url, "aud": "scrollback", "exp": NOW / 1_000 + 60, "sub": "ada" }));
    assert_eq!(issuer.verify(&token).await, Err(OidcFault::Unreachable));
    clock.advance(MINUTE);
    assert_eq!(issuer.verify(&token).await, Err(OidcFault::Unreachable));
}

#[tokio::test]
async fn an_issuer_that_says_nothing_is_not_waited_for() {
    let key = es256("a");
    let pair = Pair::of(&[&key]);
    pair.fake.answers(Page::Configuration, Some(Odd::After(Arc::default())));
    let (issuer, token) = (pair.issuer.clone(), pair.token(&key));
    let verified = tokio::spawn(async move { issuer.verify(&token).await });
    while pair.asked().0 == 0 {
        tokio::task::yield_now().await;
    }
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(5)).await;
    assert_eq!(verified.await.unwrap(), Err(OidcFault::Unreachable));
}

#[tokio::test]
async fn an_issuer_that_answers_oddly_is_unreachable() {
    let key = es256("a");
    let pair = Pair::of(&[&key]);
    let elsewhere = FakeIssuer::start();
    elsewhere.publishes(&[&key]);
    let configuration = |issuer: &str, keys: &str| {
        (Page::Configuration, Odd::Body(json!({ "issuer": issuer, "jwks_uri": keys }).to_string()))
    };
    let url = &pair.fake.url;
    let long = json!({ "keys": [key.public], "more": "x".repeat(1 << 20) }).to_string();
    for (page, odd) in [
        (Page::Configuration, Odd::Redirect(format!("{}/.well-known/openid-configuration", elsewhere.url))),
        (Page::Keys, Odd::Redirect(format!("{}/keys", elsewhere.url))),
        (Page::Keys, Odd::Body(long)),
        (Page::Keys, Odd::Body("no JSON".into())),
        (Page::Configuration, Odd::Body("{}".into())),
        configuration("https://id.example", &format!("{url}/keys")),
        configuration(&format!("{url}/"), &format!("{url}/keys")),
        configuration(url, "http://id.example/keys"),
        configuration(url, "file:///keys"),
    ] {
        pair.fake.answers(page, Some(odd));
        assert_eq!(pair.user(&key).await, Err(OidcFault::Unreachable));
        pair.fake.answers(page, None);
        pair.clock.advance(MINUTE);
    }
    assert_eq!((elsewhere.asked(Page::Configuration), elsewhere.asked(Page::Keys)), (0, 0));
    assert!(pair.user(&key).await.is_ok());
}

#[tokio::test]
async fn a_private_authority_is_trusted_where_it_is_configured_and_nowhere_else() {
    let (fake, clock, key) = (FakeIssuer::start_tls(), Clock::fixed(NOW), es256("a"));
    fake.publishes(&[&key]);
    let token = key.token(&json!({ "iss": fake.url, "aud": "scrollback", "exp": NOW / 1_000 + 60, "sub": "ada" }));
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), fake.ca.as_ref().unwrap()).unwrap();
    let ours = OidcSettings { ca: Some(file.path().to_owned()), ..settings(&fake.url) };
    let verified = Issuer::new(ours, clock.clone()).unwrap().verify(&token).await;
    assert_eq!(verified.map(|verified| verified.user).as_deref(), Ok("ada"));

    let other = FakeIssuer::start_tls();
    std::fs::write(file.path(), other.ca.as_ref().unwrap()).unwrap();
    let theirs = OidcSettings { ca: Some(file.path().to_owned()), ..settings(&fake.url) };
    assert_eq!(Issuer::new(theirs, clock).unwrap().verify(&token).await, Err(OidcFault::Unreachable));
}

#[test]
fn an_issuer_that_cannot_be_served_is_told_by_its_key() {
    let key = |settings: OidcSettings| match Issuer::new(settings, Clock::fixed(NOW)) {
        Err(OidcFault::Settings { key, .. }) => key,
        other => panic!("{other:?}"),
    };
    let good = || settings("https://id.example");
    assert_eq!(key(settings("http://id.example")), "oidc_issuer");
    assert_eq!(key(OidcSettings { audience: Vec::new(), ..good() }), "oidc_audience");
    assert_eq!(key(OidcSettings { ca: Some("/no/such/file".into()), ..good() }), "oidc_ca");
}
