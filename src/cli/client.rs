//! A host that is asked over HTTP.

use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use ureq::Agent;
use ureq::http::StatusCode;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use super::fault::CliFault;
use crate::events::HostFile;

/// How long a host may take to accept a connection. An answer may take as long as the log is.
const CONNECT: Duration = Duration::from_secs(5);
/// How long the host of a data directory may take to say that it is the one.
const PROBE: Duration = Duration::from_secs(3);

/// A parameter of a query.
pub type Pair = (&'static str, String);

/// The way to a host.
pub struct Client {
    agent: Agent,
    base: String,
    token: Option<String>,
}

#[derive(Deserialize)]
struct ErrorAnswer {
    error: ErrorBody,
}

#[derive(Deserialize)]
struct ErrorBody {
    message: String,
}

impl Client {
    /// The host at `url`. With `authorities` its certificate has to be by one of them, else by one of the public ones.
    pub fn new(url: &str, token: Option<String>, authorities: Option<&[CertificateDer<'static>]>) -> Self {
        let roots = match authorities {
            Some(authorities) => authorities.iter().map(|one| Certificate::from_der(one).to_owned()).into(),
            None => RootCerts::WebPki,
        };
        let tls = TlsConfig::builder().root_certs(roots).build();
        let agent = Agent::config_builder().http_status_as_error(false).timeout_connect(Some(CONNECT)).tls_config(tls);
        let agent = agent.build();
        Self { agent: agent.into(), base: url.trim_end_matches('/').to_owned(), token }
    }

    /// The host that wrote `file`, if it still runs and answers. Another host that took the port since does not know
    /// the secret of that run.
    pub fn of_this_run(file: &HostFile) -> Option<Self> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Who {
            this_run: bool,
        }
        let client = Self::new(&format!("http://{}", reachable(&file.address)), Some(file.secret.clone()), None);
        let probe = client.agent.get(format!("{}/api/host", client.base)).config().timeout_global(Some(PROBE)).build();
        let answer = client.with_token(probe).call().ok()?;
        let who: Who = serde_json::from_reader(answer.into_body().into_reader().take(4_096)).ok()?;
        who.this_run.then_some(client)
    }

    fn with_token<B>(&self, request: ureq::RequestBuilder<B>) -> ureq::RequestBuilder<B> {
        match &self.token {
            Some(token) => request.header("Authorization", format!("Bearer {token}")),
            None => request,
        }
    }

    /// Where the host is.
    pub fn address(&self) -> &str {
        &self.base
    }

    /// The lines that a POST of `body` is answered with, as they come.
    pub fn post_for_lines(&self, path: &str, body: &serde_json::Value) -> Result<impl Read + use<>, CliFault> {
        let request = self.agent.post(format!("{}{path}", self.base)).header("Content-Type", "application/json");
        let answer = self.with_token(request).send(body.to_string()).map_err(|error| self.not_reached(&error))?;
        let status = answer.status();
        let body = answer.into_body().into_reader();
        if status.is_success() { Ok(body) } else { Err(self.refused(status, body)) }
    }

    /// The body of the answer to a GET.
    pub fn get(&self, path: &str, query: &[Pair]) -> Result<impl Read + use<>, CliFault> {
        let query = query.iter().map(|(name, value)| (*name, value.as_str()));
        let request = self.agent.get(format!("{}{path}", self.base)).query_pairs(query);
        let answer = self.with_token(request).call().map_err(|error| self.not_reached(&error))?;
        let status = answer.status();
        let body = answer.into_body().into_reader();
        if status.is_success() { Ok(body) } else { Err(self.refused(status, body)) }
    }

    /// The object that a POST of `body` is answered with.
    pub fn post<T: DeserializeOwned>(&self, path: &str, body: &serde_json::Value) -> Result<T, CliFault> {
        let request = self.agent.post(format!("{}{path}", self.base)).header("Content-Type", "application/json");
        self.answered(self.with_token(request).send(body.to_string()).map_err(|error| self.not_reached(&error))?)
    }

    /// The object that is answered to a DELETE.
    pub fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, CliFault> {
        let request = self.with_token(self.agent.delete(format!("{}{path}", self.base)));
        self.answered(request.call().map_err(|error| self.not_reached(&error))?)
    }

    fn answered<T: DeserializeOwned>(&self, answer: ureq::http::Response<ureq::Body>) -> Result<T, CliFault> {
        let status = answer.status();
        let body = answer.into_body().into_reader();
        if !status.is_success() {
            return Err(self.refused(status, body));
        }
        serde_json::from_reader(BufReader::new(body)).map_err(|error| self.failed(&error))
    }

    /// The object that is answered.
    pub fn object<T: DeserializeOwned>(&self, path: &str, query: &[Pair]) -> Result<T, CliFault> {
        let body = self.get(path, query)?;
        serde_json::from_reader(BufReader::new(body)).map_err(|error| self.failed(&error))
    }

    /// Gives each line of the answer to `each`, as it comes.
    pub fn lines(
        &self,
        path: &str,
        query: &[Pair],
        mut each: impl FnMut(&str) -> Result<(), CliFault>,
    ) -> Result<(), CliFault> {
        for line in BufReader::new(self.get(path, query)?).lines() {
            each(&line.map_err(|error| self.failed(&error))?)?;
        }
        Ok(())
    }

    /// Why the host did not do it. What it says of a channel, an event or a parameter needs no address beside it.
    fn refused(&self, status: StatusCode, body: impl Read) -> CliFault {
        let said: Option<ErrorAnswer> = serde_json::from_reader(body.take(64 * 1024)).ok();
        match said {
            _ if status == StatusCode::UNAUTHORIZED => {
                let given = if self.token.is_some() { "does not take this token" } else { "wants a token" };
                CliFault::Failed(format!(
                    "{}: the host {given}: name one with --token-file or SCROLLBACK_TOKEN",
                    self.base
                ))
            }
            Some(said) if status == StatusCode::NOT_FOUND => CliFault::Failed(said.error.message),
            Some(said) if status == StatusCode::BAD_REQUEST => CliFault::Usage(said.error.message),
            Some(said) => CliFault::Failed(format!("{}: {}", self.base, said.error.message)),
            None => CliFault::Failed(format!("{}: answered {status}", self.base)),
        }
    }

    fn not_reached(&self, error: &ureq::Error) -> CliFault {
        match error {
            ureq::Error::Io(error) if is_by_unknown_authority(error) => CliFault::Failed(format!(
                "{}: its certificate is by no authority that is known here: name a file of them with --ca or SCROLLBACK_CA \
                 (an authority's own certificate does not do for a server: sign one with it)",
                self.base
            )),
            ureq::Error::Io(error) if error.kind() == ErrorKind::ConnectionRefused => {
                self.failed(&"no host answers there: is it running?")
            }
            ureq::Error::Io(error) if is_drop(error.kind()) => {
                self.failed(&"the host went away before it answered: it may have done what it was asked, or not")
            }
            error => self.failed(error),
        }
    }

    fn failed(&self, error: &dyn std::fmt::Display) -> CliFault {
        CliFault::Failed(format!("{}: {error}", self.base))
    }
}

/// Whether the other end hung up.
fn is_drop(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::BrokenPipe
    )
}

fn is_by_unknown_authority(error: &std::io::Error) -> bool {
    let fault = error.get_ref().and_then(|inner| inner.downcast_ref());
    // A certificate that signed itself is its own authority, which none that is known here is.
    let is_own_authority = |error: &rustls::OtherError| error.to_string().contains("CaUsedAsEndEntity");
    match fault {
        Some(rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer)) => true,
        Some(rustls::Error::InvalidCertificate(rustls::CertificateError::Other(error))) => is_own_authority(error),
        _ => false,
    }
}

/// An address to connect to where the host listens on all of them.
pub fn reachable(address: &str) -> String {
    match address.parse::<std::net::SocketAddr>() {
        Ok(any) if any.ip().is_unspecified() && any.is_ipv4() => format!("127.0.0.1:{}", any.port()),
        Ok(any) if any.ip().is_unspecified() => format!("[::1]:{}", any.port()),
        _ => address.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::reachable;

    #[test]
    fn a_host_on_all_addresses_is_reached_on_loopback() {
        assert_eq!(reachable("0.0.0.0:7878"), "127.0.0.1:7878");
        assert_eq!(reachable("[::]:7878"), "[::1]:7878");
        assert_eq!(reachable("10.1.2.3:7878"), "10.1.2.3:7878");
    }
}
