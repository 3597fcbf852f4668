//! An OpenID Connect issuer with the keys that a test gives it, and what it signs.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::web::Data;
use actix_web::{App, HttpResponse, HttpServer, web};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use scrollback::access::oidc::OidcSettings;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::served::Served;

/// A key of tests and of nothing else.
const RSA_TEST_KEY: &str = include_str!("../../fixtures/oidc/rsa-test-key.pem");

/// What the issuer answers instead of what it publishes.
#[derive(Clone)]
pub enum Odd {
    Status(u16),
    /// To this URL.
    Redirect(String),
    Body(String),
    /// What it publishes, once it is told.
    After(Arc<Notify>),
}

/// Its two pages.
#[derive(Clone, Copy)]
pub enum Page {
    Configuration = 0,
    Keys = 1,
}

struct Shared {
    url: String,
    keys: Mutex<Vec<Value>>,
    odd: [Mutex<Option<Odd>>; 2],
    asked: [AtomicUsize; 2],
}

/// A running issuer. It stops when it is dropped.
pub struct FakeIssuer {
    pub url: String,
    /// Of TLS, the certificate that signs its own.
    pub ca: Option<String>,
    shared: Arc<Shared>,
    _served: Served,
}

/// What a host is told of an issuer at this URL.
pub fn settings(issuer: &str) -> OidcSettings {
    OidcSettings {
        issuer: issuer.to_owned(),
        audience: vec!["scrollback".into()],
        user_claim: "sub".into(),
        roles_claim: Some("roles".into()),
        default_roles: Vec::new(),
        ca: None,
        keys_ttl: Duration::from_secs(3_600),
        leeway: Duration::from_secs(60),
    }
}

impl FakeIssuer {
    /// One over plain HTTP.
    pub fn start() -> Self {
        Self::serve(None)
    }

    /// One over TLS, whose authority nobody knows.
    pub fn start_tls() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        let ca = rcgen::Issuer::new(params, key);
        let own_key = KeyPair::generate().unwrap();
        let own = CertificateParams::new(vec!["localhost".into()]).unwrap().signed_by(&own_key, &ca).unwrap();
        let _ = rustls::crypto::ring::default_provider().install_default();
        let config = rustls::ServerConfig::builder().with_no_client_auth();
        let own_key = rustls::pki_types::PrivatePkcs8KeyDer::from(own_key.serialize_der());
        let config = config.with_single_cert(vec![own.der().clone()], own_key.into()).unwrap();
        Self::serve(Some((config, certificate.pem())))
    }

    fn serve(tls: Option<(rustls::ServerConfig, String)>) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://localhost:{}", listener.local_addr().unwrap().port());
        let (config, ca) = tls.unzip();
        let shared = Arc::new(Shared {
            url: url.clone(),
            keys: Mutex::default(),
            odd: [Mutex::default(), Mutex::default()],
            asked: [AtomicUsize::new(0), AtomicUsize::new(0)],
        });
        let data = Data::from(Arc::clone(&shared));
        let served = Served::on(listener, move |listener| {
            let factory = move || {
                App::new()
                    .app_data(data.clone())
                    .route("/.well-known/openid-configuration", web::get().to(configuration))
                    .route("/keys", web::get().to(keys))
            };
            let server = HttpServer::new(factory).workers(1).disable_signals();
            let server = match config {
                Some(config) => server.listen_rustls_0_23(listener, config).unwrap(),
                None => server.listen(listener).unwrap(),
            };
            server.run()
        });
        Self { url, ca, shared, _served: served }
    }

    /// Publishes these keys and no others.
    pub fn publishes(&self, keys: &[&SigningKey]) {
        self.publishes_as_written(keys.iter().map(|key| key.public.clone()).collect());
    }

    pub fn publishes_as_written(&self, keys: Vec<Value>) {
        *self.shared.keys.lock().unwrap() = keys;
    }

    /// Answers `odd` at `page`, or again what it publishes.
    pub fn answers(&self, page: Page, odd: Option<Odd>) {
        *self.shared.odd[page as usize].lock().unwrap() = odd;
    }

    /// How often it was asked for `page`.
    pub fn asked(&self, page: Page) -> usize {
        self.shared.asked[page as usize].load(Ordering::SeqCst)
    }
}

async fn configuration(shared: Data<Shared>) -> HttpResponse {
    let url = &shared.url;
    answer(&shared, Page::Configuration, || json!({ "issuer": url, "jwks_uri": format!("{url}/keys") })).await
}

async fn keys(shared: Data<Shared>) -> HttpResponse {
    answer(&shared, Page::Keys, || json!({ "keys": *shared.keys.lock().unwrap() })).await
}

async fn answer(shared: &Shared, page: Page, published: impl Fn() -> Value) -> HttpResponse {
    shared.asked[page as usize].fetch_add(1, Ordering::SeqCst);
    let odd = shared.odd[page as usize].lock().unwrap().clone();
    match odd {
        None => HttpResponse::Ok().json(published()),
        Some(Odd::Status(status)) => HttpResponse::build(StatusCode::from_u16(status).unwrap()).finish(),
        Some(Odd::Redirect(to)) => HttpResponse::Found().insert_header(("location", to)).finish(),
        Some(Odd::Body(body)) => HttpResponse::Ok().body(body),
        Some(Odd::After(told)) => {
            told.notified().await;
            HttpResponse::Ok().json(published())
        }
    }
}

/// A key that signs tokens, and what is published of it.
pub struct SigningKey {
    pub algorithm: Algorithm,
    pub kid: Option<String>,
    /// The JWK.
    pub public: Value,
    key: EncodingKey,
}

impl SigningKey {
    /// A new key for `algorithm`; of RSA there is one, since a new one takes long.
    pub fn new(algorithm: Algorithm, kid: Option<&str>) -> Self {
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let of = |algorithm| KeyPair::generate_for(algorithm).unwrap();
        let (key, mut public) = match algorithm {
            Algorithm::ES256 | Algorithm::ES384 => {
                let (curve, pair) = match algorithm {
                    Algorithm::ES256 => ("P-256", of(&rcgen::PKCS_ECDSA_P256_SHA256)),
                    _ => ("P-384", of(&rcgen::PKCS_ECDSA_P384_SHA384)),
                };
                // Behind the byte that says so, the two halves are the coordinates.
                let (x, y) = pair.public_key_raw()[1..].split_at(pair.public_key_raw().len() / 2);
                let public = json!({ "kty": "EC", "crv": curve, "x": text(x), "y": text(y) });
                (EncodingKey::from_ec_der(&pair.serialize_der()), public)
            }
            Algorithm::EdDSA => {
                let pair = of(&rcgen::PKCS_ED25519);
                let public = json!({ "kty": "OKP", "crv": "Ed25519", "x": text(pair.public_key_raw()) });
                (EncodingKey::from_ed_der(&pair.serialize_der()), public)
            }
            _ => {
                let pair = KeyPair::from_pem(RSA_TEST_KEY).unwrap();
                // The DER of a sequence of two numbers: the modulus of 2048 bits follows 9 bytes of headers.
                let modulus = &pair.public_key_raw()[9..265];
                let public = json!({ "kty": "RSA", "n": text(modulus), "e": "AQAB" });
                (EncodingKey::from_rsa_pem(RSA_TEST_KEY.as_bytes()).unwrap(), public)
            }
        };
        public["use"] = json!("sig");
        public["alg"] = json!(format!("{algorithm:?}"));
        if let Some(kid) = kid {
            public["kid"] = json!(kid);
        }
        Self { algorithm, kid: kid.map(str::to_owned), public, key }
    }

    /// A token of these claims.
    pub fn token(&self, claims: &Value) -> String {
        let mut head = json!({ "typ": "JWT", "alg": format!("{:?}", self.algorithm) });
        if let Some(kid) = &self.kid {
            head["kid"] = json!(kid);
        }
        self.token_with_head(&head, claims)
    }

    /// A token whose head may say what it likes; it is signed with this key all the same.
    pub fn token_with_head(&self, head: &Value, claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(head), part(claims));
        let signature = jsonwebtoken::crypto::sign(signed.as_bytes(), &self.key, self.algorithm).unwrap();
        format!("{signed}.{signature}")
    }
}
