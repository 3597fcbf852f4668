//! TLS, with the real binary: the host's own, the command line's, and that of a proxy in front.

mod command_line;
mod own;
mod proxied;

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use tempfile::TempDir;
use tokio_tungstenite::{Connector, MaybeTlsStream, WebSocketStream, client_async_tls_with_config};

use crate::command::{Host, scrollback};

/// The public name of every host here.
const NAME: &str = "box.example";
const TOKEN: &str = "t";

type Socket = WebSocketStream<MaybeTlsStream<tokio::net::TcpStream>>;

/// Who signs the certificates of a test.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    root: CertificateDer<'static>,
}

/// The files of a certificate and its key.
struct Pair {
    chain: PathBuf,
    key: PathBuf,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::OrganizationName, "the authority of a test");
        let root = params.self_signed(&key).unwrap();
        Self { pem: root.pem(), root: root.der().clone(), issuer: Issuer::new(params, key) }
    }

    /// Puts a new certificate for [`NAME`] and loopback into the files, in place of the one before; returns it.
    fn issue(&self, pair: &Pair) -> CertificateDer<'static> {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([NAME.to_owned(), "127.0.0.1".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        replace(&pair.chain, &certificate.pem());
        replace(&pair.key, &key.serialize_pem());
        certificate.der().clone()
    }

    /// A client that takes what this authority signed, and nothing else.
    fn trusted(&self) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.root.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        builder.with_root_certificates(roots).with_no_client_auth()
    }

    /// The same as a client of HTTP, for which [`NAME`] is on loopback.
    fn web(&self) -> reqwest::Client {
        let loopback = ([127, 0, 0, 1], 0).into();
        let builder = reqwest::Client::builder().no_proxy().tls_backend_preconfigured(self.trusted());
        builder.resolve(NAME, loopback).build().unwrap()
    }

    /// A socket to `address` under [`NAME`].
    async fn socket(&self, address: SocketAddr) -> Socket {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let url = format!("wss://{NAME}:{}/?tkn={TOKEN}", address.port());
        let connector = Connector::Rustls(Arc::new(self.trusted()));
        client_async_tls_with_config(url, stream, None, Some(connector)).await.unwrap().0
    }
}

impl Pair {
    fn in_folder(folder: &Path) -> Self {
        Self { chain: folder.join("chain.pem"), key: folder.join("key.pem") }
    }
}

/// Writes a file whole, under its name at once.
fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, path).unwrap();
}

/// A handshake with what is at `address`.
fn shaken(address: SocketAddr, config: ClientConfig) -> std::io::Result<ClientConnection> {
    let name = ServerName::try_from(NAME).unwrap();
    let mut connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = TcpStream::connect(address)?;
    while connection.is_handshaking() {
        connection.complete_io(&mut stream)?;
    }
    Ok(connection)
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A host with TLS of its own and a token.
struct Secured {
    authority: Authority,
    pair: Pair,
    first: CertificateDer<'static>,
    data: PathBuf,
    host: Host,
    home: TempDir,
}

impl Secured {
    fn start(variables: &[(&str, &str)]) -> Self {
        Self::with(&[], variables)
    }

    fn with(args: &[&str], variables: &[(&str, &str)]) -> Self {
        let home = tempfile::tempdir().unwrap();
        let (authority, pair) = (Authority::new(), Pair::in_folder(home.path()));
        let first = authority.issue(&pair);
        let (port, data) = (free_port(), home.path().join("data"));
        let mut command = scrollback(home.path(), &["serve", "--listen", &format!("127.0.0.1:{port}")]);
        command.arg("--data").arg(&data).args(args).env("SCROLLBACK_TOKEN", TOKEN);
        command.env("SCROLLBACK_TLS_CERTIFICATE", &pair.chain).env("SCROLLBACK_TLS_KEY", &pair.key);
        command.env("SCROLLBACK_PUBLIC_URL", format!("https://{NAME}:{port}"));
        let host = Host::spawn(command.envs(variables.iter().copied()));
        Self { authority, pair, first, data, host, home }
    }

    fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.host.port).into()
    }

    /// The certificate that a new connection is shown.
    fn shows(&self) -> CertificateDer<'static> {
        let connection = shaken(self.address(), self.authority.trusted()).unwrap();
        connection.peer_certificates().unwrap()[0].clone()
    }

    /// The text that is answered under this path, with the token.
    async fn get(&self, path: &str) -> String {
        let url = format!("https://{NAME}:{}{path}", self.host.port);
        let answer = self.authority.web().get(url).bearer_auth(TOKEN).send().await.unwrap();
        answer.error_for_status().unwrap().text().await.unwrap()
    }
}
