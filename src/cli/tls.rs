//! TLS of the host's own: a certificate and its key, read from files, and read again when they change.
//!
//! Used by `serve`. Always: a pair that cannot be used never takes the place of one that can, and connections that stand
//! are not touched. Left out on purpose: how a certificate is got and renewed, which is the work of an ACME client.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{InconsistentKeys, ServerConfig};
use tokio::signal::unix::Signal;
use tokio::time::sleep;

use super::fault::CliFault;
use crate::config::Config;

/// A file that cannot be used, under its key.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {}: {problem}", path.display())]
pub struct TlsFault {
    key: &'static str,
    path: PathBuf,
    problem: String,
}

impl From<TlsFault> for CliFault {
    fn from(fault: TlsFault) -> Self {
        CliFault::Usage(fault.to_string())
    }
}

/// The certificate that new connections are shown.
pub struct Certificate {
    chain: PathBuf,
    key: PathBuf,
    current: ArcSwap<CertifiedKey>,
    /// How the files looked when they were first read.
    first: Look,
}

/// How both files look from outside: device, inode, size and time of the last change. `None` for one that is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Look([Option<[i128; 4]>; 2]);

impl Certificate {
    /// The pair that is configured, `None` where there is none.
    ///
    /// # Errors
    /// [`TlsFault`] for a file that cannot be read, that holds something else, or a key of another certificate.
    pub fn configured(config: &Config) -> Result<Option<Arc<Self>>, TlsFault> {
        let (Some(chain), Some(key)) = (&config.tls_certificate, &config.tls_key) else { return Ok(None) };
        // Before the files are read: what changes meanwhile is seen later.
        let first = Look::at(chain, key);
        let current = ArcSwap::from_pointee(read(chain, key)?);
        Ok(Some(Arc::new(Self { chain: chain.clone(), key: key.clone(), current, first })))
    }

    /// How connections are secured: with TLS 1.2 or 1.3, and the pair of the moment.
    ///
    /// # Errors
    /// [`rustls::Error`] when the library has no ciphers for that.
    pub fn server_config(self: &Arc<Self>) -> Result<ServerConfig, rustls::Error> {
        let builder = ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13, &TLS12])?;
        let pair: Arc<dyn ResolvesServerCert> = Arc::<Self>::clone(self);
        Ok(builder.with_no_client_auth().with_cert_resolver(pair))
    }

    /// Takes the pair that is in the files now; a bad one is told and not taken.
    fn reload(&self) {
        match read(&self.chain, &self.key) {
            Ok(pair) => {
                self.current.store(Arc::new(pair));
                tracing::info!(certificate = %self.chain.display(), "the certificate was read again");
            }
            Err(fault) => {
                metrics::counter!("scrollback_tls_reloads_failed_total").increment(1);
                tracing::error!(%fault, "the certificate cannot be read again; the one before it stays");
            }
        }
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.load_full())
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate").field("chain", &self.chain).finish_non_exhaustive()
    }
}

/// Reads the files again at each `hangup`, and when they look otherwise, which is seen once in `interval`.
pub async fn keep_fresh(certificate: Arc<Certificate>, interval: Duration, mut hangup: Signal) {
    let mut seen = certificate.first.clone();
    loop {
        let is_asked = tokio::select! {
            _ = hangup.recv() => true,
            () = sleep(interval) => false,
        };
        let certificate = Arc::clone(&certificate);
        let before = seen.clone();
        let looked = tokio::task::spawn_blocking(move || {
            let look = Look::at(&certificate.chain, &certificate.key);
            if is_asked || look != before {
                certificate.reload();
            }
            look
        });
        seen = looked.await.unwrap_or(seen);
    }
}

impl Look {
    fn at(chain: &Path, key: &Path) -> Self {
        let look = |path: &Path| {
            let file = std::fs::metadata(path).ok()?;
            let changed = i128::from(file.mtime()) * 1_000_000_000 + i128::from(file.mtime_nsec());
            Some([i128::from(file.dev()), i128::from(file.ino()), i128::from(file.size()), changed])
        };
        Self([look(chain), look(key)])
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn read(chain: &Path, key: &Path) -> Result<CertifiedKey, TlsFault> {
    let of_chain = |problem| TlsFault { key: "tls_certificate", path: chain.to_owned(), problem };
    let of_key = |problem| TlsFault { key: "tls_key", path: key.to_owned(), problem };
    let certificates = certificates_in(chain).map_err(of_chain)?;
    let secret = std::fs::read(key).map_err(|error| of_key(error.to_string()))?;
    let secret = PrivateKeyDer::from_pem_slice(&secret)
        .map_err(|_| of_key("holds no private key in PEM (one with a passphrase cannot be read)".to_owned()))?;
    CertifiedKey::from_der(certificates, secret, &provider()).map_err(|error| match error {
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            of_key(format!("is not the key of the first certificate in {}", chain.display()))
        }
        rustls::Error::InvalidCertificate(_) => of_chain(error.to_string()),
        error => of_key(error.to_string()),
    })
}

/// The certificates in a PEM file, at least one.
///
/// # Errors
/// What is wrong with the file, without its path.
pub fn certificates_in(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let text = std::fs::read(path).map_err(|error| error.to_string())?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match certificates {
        Ok(certificates) if certificates.is_empty() => Err("holds no certificate in PEM".to_owned()),
        certificates => certificates.map_err(|error| error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn pair(directory: &Path, name: &str) -> (PathBuf, PathBuf) {
        let made = rcgen::generate_simple_self_signed(["box.example".to_owned()]).unwrap();
        let (chain, key) = (directory.join(format!("{name}.pem")), directory.join(format!("{name}.key")));
        fs::write(&chain, made.cert.pem()).unwrap();
        fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        (chain, key)
    }

    #[test]
    fn a_pair_that_cannot_be_used_names_the_key_and_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let ((chain, key), (_, other)) = (pair(directory.path(), "one"), pair(directory.path(), "other"));
        let (missing, empty) = (directory.path().join("missing"), directory.path().join("empty"));
        fs::write(&empty, "").unwrap();
        assert!(read(&chain, &key).is_ok());
        for (chain, key, of, problem) in [
            (&missing, &key, "tls_certificate", "No such file"),
            (&empty, &key, "tls_certificate", "holds no certificate"),
            (&key, &key, "tls_certificate", "holds no certificate"),
            (&chain, &missing, "tls_key", "No such file"),
            (&chain, &chain, "tls_key", "holds no private key"),
            (&chain, &other, "tls_key", "is not the key of the first certificate in"),
        ] {
            let fault = read(chain, key).unwrap_err();
            let path = if of == "tls_key" { key } else { chain };
            assert_eq!((fault.key, &fault.path), (of, path));
            assert!(fault.problem.contains(problem), "{fault}");
        }
    }

    #[test]
    fn another_file_under_the_same_name_looks_otherwise() {
        let directory = tempfile::tempdir().unwrap();
        let (chain, key) = pair(directory.path(), "one");
        let before = Look::at(&chain, &key);
        assert_eq!(Look::at(&chain, &key), before);
        let (_, other) = pair(directory.path(), "other");
        fs::rename(other, &key).unwrap();
        assert_ne!(Look::at(&chain, &key), before);
    }
}
