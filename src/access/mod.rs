//! Who may come in: the check of a request before anything reads, changes or upgrades.
//!
//! Used by the socket and by every HTTP endpoint that is not open to all. A request is admitted with an [`Identity`] or
//! [`Refused`]; the identity comes from the request's token alone, never from what a client says of itself later.
//!
//! Always: a page of a foreign origin is refused, whatever it knows; on loopback a foreign `Host` is refused too, so a
//! name that was pointed at this machine opens nothing. The name of `public_url` is this host's too, but what comes under it
//! comes from elsewhere: it needs a token, also where loopback is open. Left out on purpose: roles and grants, which are read at every
//! command.
//! Source: the outer contract, endpoints; AHP threat model.

pub mod arriving;
pub mod check;
pub mod oidc;
pub mod seats;
pub mod table;

use std::net::SocketAddr;
use std::sync::Arc;

use actix_web::http::{StatusCode, header};
use actix_web::{HttpRequest, HttpResponse, web};
use subtle::ConstantTimeEq;

use self::oidc::{Issuer, OidcFault};
pub use crate::actors::identity::Identity;
use crate::actors::people::PeopleInForce;
use crate::actors::people::TOKEN;
use crate::clock::Clock;

/// What a request is checked against.
#[derive(Clone)]
pub struct Gate {
    /// The deployment token. Without one a loopback address is open to anybody on the machine.
    pub token: Option<String>,
    /// The secret of this run, which the host's own command line reads from disk; as good as the token.
    pub host_secret: Option<String>,
    pub host_name: String,
    /// Origins of pages that may come in beside this host's own, such as `vscode-file://vscode-app`.
    pub allowed_origins: Vec<String>,
    /// The address that the host listens at, with its real port.
    pub bind: SocketAddr,
    /// The loopback address that the host's own agents and command line use, where it is another one.
    pub inner: Option<SocketAddr>,
    /// The origin of the URL that others reach the host under, such as behind a proxy.
    pub public_origin: Option<String>,
    /// Those with tokens of their own.
    pub people: Arc<PeopleInForce>,
    /// Whose tokens are taken beside the host's own.
    pub issuer: Option<Issuer>,
    pub clock: Clock,
}

/// Why a request is not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("a token is needed: send it as ?tkn=TOKEN or as Authorization: Bearer TOKEN")]
    NoToken,
    #[error("this token is not, or no longer, good here")]
    BadToken,
    #[error("the issuer of this token cannot be asked for its keys now: try again")]
    IssuerUnreachable,
    #[error("this page's origin is not allowed: add it to allowed_origins")]
    ForeignOrigin,
    #[error(
        "this Host is not this machine: use localhost, 127.0.0.1 or [::1] with the host's port, or set public_url to its name"
    )]
    ForeignHost,
}

impl Refused {
    /// The status and the stable word.
    pub fn kind(self) -> (StatusCode, &'static str) {
        match self {
            Refused::NoToken => (StatusCode::UNAUTHORIZED, "no-token"),
            Refused::BadToken => (StatusCode::UNAUTHORIZED, "bad-token"),
            Refused::IssuerUnreachable => (StatusCode::SERVICE_UNAVAILABLE, "issuer-unreachable"),
            Refused::ForeignOrigin => (StatusCode::FORBIDDEN, "foreign-origin"),
            Refused::ForeignHost => (StatusCode::FORBIDDEN, "foreign-host"),
        }
    }

    /// The stable word, status and sentence as JSON: `{"code","message"}`.
    pub fn response(&self) -> HttpResponse {
        let (status, code) = self.kind();
        let mut response = HttpResponse::build(status);
        if status == StatusCode::UNAUTHORIZED {
            response.insert_header((header::WWW_AUTHENTICATE, "Bearer"));
        }
        response.json(serde_json::json!({ "code": code, "message": self.to_string() }))
    }
}

impl Gate {
    /// The gate of a host that listens at `bind`, with no token and nobody on its list.
    pub fn at(bind: SocketAddr) -> Self {
        Self {
            token: None,
            host_secret: None,
            host_name: "host".into(),
            allowed_origins: Vec::new(),
            bind,
            inner: None,
            public_origin: None,
            people: Arc::default(),
            issuer: None,
            clock: Clock::system(),
        }
    }

    /// Admits `req`, or says why not. Origin and host are looked at before the token.
    ///
    /// # Errors
    /// [`Refused`], whose [`Refused::response`] is the answer.
    pub async fn admit(&self, req: &HttpRequest) -> Result<Identity, Refused> {
        self.check_host(req)?;
        self.check_origin(req)?;
        let sent = sent_tokens(req);
        if self.knows_token(&sent) {
            return Ok(Identity::root(&self.host_name));
        }
        for token in &sent {
            match self.person(token) {
                Some(identity) => return Ok(identity),
                // Somebody's token that has ended is nobody's, on an open address too.
                None if token.starts_with(TOKEN) => return Err(Refused::BadToken),
                None if self.issuer.is_some() && Issuer::looks_like(token) => return self.of_issuer(token).await,
                None => {}
            }
        }
        if self.is_open() && !self.is_public(req) {
            return Ok(Identity::root(&self.host_name));
        }
        Err(if sent.iter().all(String::is_empty) { Refused::NoToken } else { Refused::BadToken })
    }

    /// Whom a token of the issuer names.
    async fn of_issuer(&self, token: &str) -> Result<Identity, Refused> {
        let Some(issuer) = &self.issuer else { return Err(Refused::BadToken) };
        match issuer.verify(token).await {
            Ok(verified) => {
                let roles = verified.roles.iter().filter_map(|role| role.parse().ok()).collect();
                Ok(Identity::of_issuer(&verified.user, roles, verified.expires_at))
            }
            Err(OidcFault::Unreachable) => Err(Refused::IssuerUnreachable),
            Err(fault) => {
                tracing::info!(%fault, "a token of the issuer was refused");
                Err(Refused::BadToken)
            }
        }
    }

    /// Whose token of this host it is.
    fn person(&self, token: &str) -> Option<Identity> {
        let people = self.people.now();
        let (name, kept) = people.of_token(token)?;
        let identity = Identity::person(name, &kept.id, kept.expires_at);
        (!identity.is_over(self.clock.now())).then_some(identity)
    }

    /// Admits a request for what needs no token, from a page and under a name that may be used.
    ///
    /// # Errors
    /// [`Refused`], whose [`Refused::response`] is the answer.
    pub fn check_place(&self, req: &HttpRequest) -> Result<(), Refused> {
        self.check_host(req)?;
        self.check_origin(req)
    }

    fn is_open(&self) -> bool {
        self.token.is_none() && self.bind.ip().is_loopback()
    }

    fn knows_token(&self, sent: &[String]) -> bool {
        let known = [self.token.as_deref(), self.host_secret.as_deref()];
        known.into_iter().flatten().any(|known| sent.iter().any(|sent| is_same(known, sent)))
    }

    /// On loopback a request must name this machine, else a foreign name that resolves to it would do.
    fn check_host(&self, req: &HttpRequest) -> Result<(), Refused> {
        let Some(value) = req.headers().get(header::HOST) else { return Ok(()) };
        let bind = self.bind_of(req);
        if !bind.ip().is_loopback() || self.is_public(req) {
            return Ok(());
        }
        let is_this = value.to_str().is_ok_and(|authority| is_this_machine(bind, authority, bind.port()));
        if is_this { Ok(()) } else { Err(Refused::ForeignHost) }
    }

    fn check_origin(&self, req: &HttpRequest) -> Result<(), Refused> {
        let Some(value) = req.headers().get(header::ORIGIN) else { return Ok(()) };
        let origin = value.to_str().map_err(|_| Refused::ForeignOrigin)?;
        if self.allowed_origins.iter().chain(&self.public_origin).any(|allowed| allowed == origin) {
            return Ok(());
        }
        let (scheme, authority) = origin.split_once("://").ok_or(Refused::ForeignOrigin)?;
        let default_port = default_port(scheme).ok_or(Refused::ForeignOrigin)?;
        let is_own = host_of(req).is_some_and(|host| host.eq_ignore_ascii_case(authority));
        if is_own || is_this_machine(self.bind_of(req), authority, default_port) {
            return Ok(());
        }
        Err(Refused::ForeignOrigin)
    }

    /// Whether the request names the host as others reach it.
    fn is_public(&self, req: &HttpRequest) -> bool {
        let public = self.public_origin.as_deref().and_then(|origin| origin.split_once("://"));
        public.zip(host_of(req)).is_some_and(|((scheme, authority), host)| {
            let port_is = |port: &str| port.parse().ok() == default_port(scheme);
            let spelled = host.rsplit_once(':').filter(|(_, port)| port_is(port)).map(|(name, _)| name);
            [Some(host), spelled].into_iter().flatten().any(|host| host.eq_ignore_ascii_case(authority))
        })
    }

    /// The address that the request came in at.
    fn bind_of(&self, req: &HttpRequest) -> SocketAddr {
        self.inner.filter(|inner| *inner == req.app_config().local_addr()).unwrap_or(self.bind)
    }
}

fn host_of(req: &HttpRequest) -> Option<&str> {
    req.headers().get(header::HOST)?.to_str().ok()
}

/// The port of a URL that names none.
fn default_port(scheme: &str) -> Option<u16> {
    match scheme {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    }
}

/// Whether `authority` (`host[:port]`) names loopback or the address `bind`, with its port. One that names no port means
/// `default_port`.
fn is_this_machine(bind: SocketAddr, authority: &str, default_port: u16) -> bool {
    let (name, port) = split_authority(authority);
    let port = port.map_or(Some(default_port), |port| port.parse().ok());
    let bound = match bind {
        SocketAddr::V4(address) => address.ip().to_string(),
        SocketAddr::V6(address) => format!("[{}]", address.ip()),
    };
    let is_name = ["localhost", "127.0.0.1", "[::1]", bound.as_str()].iter().any(|n| n.eq_ignore_ascii_case(name));
    port == Some(bind.port()) && is_name
}

/// The host and the port of `host[:port]`, an IPv6 address in its brackets.
fn split_authority(authority: &str) -> (&str, Option<&str>) {
    let end_of_name = authority.rfind(']').map_or(0, |at| at + 1);
    match authority.get(end_of_name..).and_then(|rest| rest.find(':')) {
        Some(at) => (authority.get(..end_of_name + at).unwrap_or(authority), authority.get(end_of_name + at + 1..)),
        None => (authority, None),
    }
}

/// The bearer token of a request.
pub fn bearer(req: &HttpRequest) -> Option<&str> {
    let value = req.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let (scheme, token) = value?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Every token that the request carries, in its query and in its header.
fn sent_tokens(req: &HttpRequest) -> Vec<String> {
    let query = web::Query::<Vec<(String, String)>>::from_query(req.query_string());
    let query = query.map(web::Query::into_inner).unwrap_or_default();
    let mut tokens: Vec<String> = query.into_iter().filter(|(key, _)| key == "tkn").map(|(_, token)| token).collect();
    tokens.extend(bearer(req).map(str::to_owned));
    tokens
}

/// Compares without telling by its time how much was right.
fn is_same(known: &str, sent: &str) -> bool {
    !known.is_empty() && bool::from(known.as_bytes().ct_eq(sent.as_bytes()))
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;
    use futures_util::FutureExt;

    use super::*;

    fn gate(token: Option<&str>) -> Gate {
        Gate {
            token: token.map(str::to_owned),
            host_secret: Some("run-secret".into()),
            host_name: "box".into(),
            allowed_origins: vec!["vscode-file://vscode-app".into()],
            ..Gate::at("127.0.0.1:4000".parse().unwrap())
        }
    }

    fn admit(gate: &Gate, uri: &str, headers: &[(&str, &str)]) -> Result<Identity, Refused> {
        let request = headers.iter().fold(TestRequest::with_uri(uri), |request, header| request.insert_header(*header));
        let request = request.to_http_request();
        gate.admit(&request).now_or_never().expect("nobody is asked")
    }

    #[test]
    fn an_open_loopback_address_admits_anybody_as_root() {
        let identity = admit(&gate(None), "/", &[("host", "localhost:4000")]).unwrap();
        assert_eq!(&*identity.principal, "root:box");
    }

    #[test]
    fn a_configured_token_is_needed_in_query_or_header() {
        let gate = gate(Some("t&k n"));
        assert_eq!(admit(&gate, "/", &[]), Err(Refused::NoToken));
        assert_eq!(admit(&gate, "/?tkn=wrong", &[]), Err(Refused::BadToken));
        assert!(admit(&gate, "/?x=1&tkn=t%26k%20n", &[]).is_ok());
        assert!(admit(&gate, "/", &[("authorization", "bearer t&k n")]).is_ok());
        assert_eq!(admit(&gate, "/", &[("authorization", "Basic t&k n")]), Err(Refused::NoToken));
    }

    #[test]
    fn the_secret_of_this_run_is_as_good_as_the_token() {
        assert!(admit(&gate(Some("t")), "/?tkn=run-secret", &[]).is_ok());
    }

    #[test]
    fn an_empty_token_opens_nothing() {
        assert_eq!(admit(&gate(Some("")), "/?tkn=", &[]), Err(Refused::NoToken));
    }

    #[test]
    fn an_address_of_the_network_without_a_token_is_closed() {
        let gate = Gate { bind: "0.0.0.0:4000".parse().unwrap(), ..gate(None) };
        assert_eq!(admit(&gate, "/", &[]), Err(Refused::NoToken));
    }

    #[test]
    fn origins_are_absent_own_or_allowed() {
        let gate = gate(None);
        let with = |origin| admit(&gate, "/", &[("host", "127.0.0.1:4000"), ("origin", origin)]);
        for own in ["http://127.0.0.1:4000", "http://localhost:4000", "https://[::1]:4000", "vscode-file://vscode-app"]
        {
            assert!(with(own).is_ok(), "{own}");
        }
        let ports = [("http://localhost", 80), ("https://localhost", 443)];
        for (origin, port) in ports {
            let gate = Gate { bind: ([127, 0, 0, 1], port).into(), ..gate.clone() };
            let own = admit(&gate, "/", &[("host", "127.0.0.1"), ("origin", origin)]);
            assert!(own.is_ok(), "{origin}");
            let other = admit(&gate, "/", &[("host", "127.0.0.1"), ("origin", "https://localhost:4000")]);
            assert_eq!(other, Err(Refused::ForeignOrigin));
        }
        for foreign in ["null", "http://localhost:4001", "http://localhost", "https://evil.example", "file://"] {
            assert_eq!(with(foreign), Err(Refused::ForeignOrigin), "{foreign}");
        }
    }

    #[test]
    fn the_token_does_not_open_the_gate_to_a_foreign_page() {
        let refused = admit(&gate(Some("t")), "/?tkn=t", &[("origin", "https://evil.example")]);
        assert_eq!(refused, Err(Refused::ForeignOrigin));
    }

    #[test]
    fn on_loopback_a_foreign_host_is_refused() {
        let gate = gate(None);
        for good in ["localhost", "LOCALHOST:4000", "127.0.0.1:4000", "[::1]", "[::1]:4000"] {
            assert!(admit(&gate, "/", &[("host", good)]).is_ok(), "{good}");
        }
        for bad in ["evil.example:4000", "localhost:1", "127.0.0.1.evil.example", "localhost:x", "::1"] {
            assert_eq!(admit(&gate, "/", &[("host", bad)]), Err(Refused::ForeignHost), "{bad}");
        }
    }

    #[test]
    fn a_name_of_the_network_is_its_own_origin() {
        let gate = Gate { bind: "0.0.0.0:4000".parse().unwrap(), ..gate(Some("t")) };
        let headers = [("host", "box.example:4000"), ("origin", "https://box.example:4000")];
        assert!(admit(&gate, "/?tkn=t", &headers).is_ok());
    }

    #[test]
    fn the_public_name_is_this_host_and_needs_the_token() {
        let gate = |token| Gate { public_origin: Some("https://box.example".into()), ..gate(token) };
        let with = |gate: &Gate, uri, host, origin| admit(gate, uri, &[("host", host), ("origin", origin)]);
        let (closed, open) = (gate(Some("t")), gate(None));
        for host in ["box.example", "BOX.example", "box.example:443", "localhost:4000"] {
            assert!(with(&closed, "/?tkn=t", host, "https://box.example").is_ok(), "{host}");
        }
        for host in ["box.example:80", "box.example:4000", "other.example", "box.example:"] {
            let refused = with(&closed, "/?tkn=t", host, "https://box.example");
            assert_eq!(refused, Err(Refused::ForeignHost), "{host}");
        }
        for origin in ["http://box.example", "https://box.example:444", "https://x.box.example"] {
            let refused = with(&closed, "/?tkn=t", "localhost:4000", origin);
            assert_eq!(refused, Err(Refused::ForeignOrigin), "{origin}");
        }
        assert_eq!(with(&open, "/", "box.example", "https://box.example"), Err(Refused::NoToken));
        assert!(with(&open, "/?tkn=run-secret", "box.example", "https://box.example").is_ok());
        assert!(admit(&open, "/", &[("host", "localhost:4000")]).is_ok());
    }

    #[test]
    fn each_address_has_its_own_names() {
        // What a request of a test came in at.
        let came_in = TestRequest::default().to_http_request().app_config().local_addr();
        let outer = "0.0.0.0:4000".parse().unwrap();
        let gate = |inner| Gate { bind: outer, inner: Some(inner), ..gate(Some("t")) };
        let (inside, outside) = (gate(came_in), gate("127.0.0.1:4001".parse().unwrap()));
        let host = format!("127.0.0.1:{}", came_in.port());
        assert!(admit(&inside, "/?tkn=t", &[("host", &host)]).is_ok());
        assert_eq!(admit(&inside, "/", &[("host", &host)]), Err(Refused::NoToken));
        assert_eq!(admit(&inside, "/?tkn=t", &[("host", "box.example")]), Err(Refused::ForeignHost));
        assert!(admit(&outside, "/?tkn=t", &[("host", "box.example")]).is_ok());
    }

    #[test]
    fn refusals_have_their_status() {
        assert_eq!(Refused::NoToken.response().status(), StatusCode::UNAUTHORIZED);
        assert_eq!(Refused::ForeignOrigin.response().status(), StatusCode::FORBIDDEN);
        assert_eq!(Refused::ForeignHost.response().status(), StatusCode::FORBIDDEN);
    }
}
