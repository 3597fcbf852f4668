//! Asks an issuer for its keys: its configuration says where they are.

use std::path::Path;
use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Certificate, Client, Response};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::timeout;

use super::OidcFault;
use super::keys::KeySet;
use crate::config::oidc::{authorities, issuer_problem, may_be_asked};

/// How long an issuer may take for all of it.
const WITHIN: Duration = Duration::from_secs(5);
/// The longest answer that is read, in bytes.
const MAX_ANSWER: usize = 1 << 20;

/// Where the keys come from.
pub(super) struct Source {
    issuer: String,
    client: Client,
}

/// What is read of an issuer's configuration.
#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
}

/// What an issuer publishes.
#[derive(Deserialize)]
struct Published {
    keys: Vec<Value>,
}

impl Source {
    pub fn new(issuer: &str, ca: Option<&Path>) -> Result<Self, OidcFault> {
        let of = |key: &'static str| move |problem: String| OidcFault::Settings { key, problem };
        issuer_problem(issuer).map_or(Ok(()), Err).map_err(of("oidc_issuer"))?;
        // The one provider of cryptography that the host is built with; it is there where another came first.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // No connection is kept: the host asks rarely, and from more than one runtime.
        let client = Client::builder()
            .redirect(Policy::none())
            .no_proxy()
            .pool_max_idle_per_host(0)
            .user_agent(concat!("scrollback/", env!("CARGO_PKG_VERSION")));
        let (key, client) = match ca {
            None => ("oidc_issuer", client),
            Some(path) => {
                let pem = authorities(path).map_err(of("oidc_ca"))?;
                let only = Certificate::from_pem_bundle(&pem).map_err(|error| of("oidc_ca")(in_words(&error)))?;
                ("oidc_ca", client.tls_certs_only(only))
            }
        };
        let client = client.build().map_err(|error| of(key)(in_words(&error)))?;
        Ok(Self { issuer: issuer.to_owned(), client })
    }

    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// The keys that the issuer publishes now, or why they are not to be had.
    pub async fn fetch(&self) -> Result<KeySet, String> {
        let asked = timeout(WITHIN, self.ask()).await;
        asked.unwrap_or_else(|_| Err(format!("it did not answer within {}", humantime::format_duration(WITHIN))))
    }

    async fn ask(&self) -> Result<KeySet, String> {
        let place = format!("{}/.well-known/openid-configuration", self.issuer.trim_end_matches('/'));
        let discovery: Discovery = self.read("configuration", &place).await?;
        if discovery.issuer != self.issuer {
            return Err("its configuration is of another issuer".to_owned());
        }
        if !may_be_asked(&discovery.jwks_uri, &self.issuer) {
            return Err("its keys are not at an https:// URL".to_owned());
        }
        let published: Published = self.read("keys", &discovery.jwks_uri).await?;
        Ok(KeySet::of(published.keys))
    }

    async fn read<T: DeserializeOwned>(&self, what: &str, url: &str) -> Result<T, String> {
        let response = self.client.get(url).send().await.map_err(|error| in_words(&error))?;
        if !response.status().is_success() {
            return Err(format!("it answers {} where its {what} should be", response.status().as_u16()));
        }
        let body = body(response).await?;
        serde_json::from_slice(&body).map_err(|_| format!("its {what} cannot be read"))
    }
}

/// The whole body; an error where it is too long.
async fn body(mut response: Response) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    while let Some(bytes) = response.chunk().await.map_err(|error| in_words(&error))? {
        if body.len() + bytes.len() > MAX_ANSWER {
            return Err(format!("it sends more than {MAX_ANSWER} bytes"));
        }
        body.extend_from_slice(&bytes);
    }
    Ok(body)
}

/// What an error comes from in the end, without the URL.
fn in_words(error: &reqwest::Error) -> String {
    let mut words = None;
    let mut next = std::error::Error::source(error);
    while let Some(error) = next {
        words = Some(error.to_string());
        next = error.source();
    }
    words.unwrap_or_else(|| error.to_string())
}
