//! Where the host listens: at the configured address, and with TLS at one more of this machine alone.
//!
//! The second one has no TLS: the host's own agents and command line use it, which could not check a certificate that is made
//! out to a public name.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;

use tokio::net::TcpSocket;

use super::fault::CliFault;
use super::settings::address_url;
use super::tls::Certificate;

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1_024;

/// The open listeners of a host.
pub struct Listening {
    pub listener: TcpListener,
    /// Its address, with the real port.
    pub bind: SocketAddr,
    pub tls: Option<Secured>,
}

/// What comes with TLS.
pub struct Secured {
    pub certificate: Arc<Certificate>,
    pub inner: TcpListener,
    /// Its address, with the real port.
    pub inner_bind: SocketAddr,
}

impl Listening {
    /// Listens at `address`, with TLS where there is a certificate.
    ///
    /// # Errors
    /// [`CliFault::Failed`] for an address that cannot be had.
    pub fn at(address: SocketAddr, certificate: Option<Arc<Certificate>>) -> Result<Self, CliFault> {
        let (listener, bind) = listen(address)?;
        let secured = |certificate| {
            let (inner, inner_bind) = listen((Ipv4Addr::LOCALHOST, 0).into())?;
            Ok::<_, CliFault>(Secured { certificate, inner, inner_bind })
        };
        Ok(Self { listener, bind, tls: certificate.map(secured).transpose()? })
    }

    /// The URL of the configured address.
    pub fn url(&self) -> String {
        address_url(if self.tls.is_some() { "https" } else { "http" }, self.bind)
    }

    /// The address that the host's own agents and command line use.
    pub fn inner_bind(&self) -> SocketAddr {
        self.tls.as_ref().map_or(self.bind, |tls| tls.inner_bind)
    }

    /// The URL of that address.
    pub fn inner_url(&self) -> String {
        address_url("http", self.inner_bind())
    }
}

fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), CliFault> {
    let listener = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        let listener = socket.listen(BACKLOG)?.into_std()?;
        let bind = listener.local_addr()?;
        Ok((listener, bind))
    };
    listener().map_err(|error: std::io::Error| match error.kind() {
        std::io::ErrorKind::AddrInUse => CliFault::Failed(format!("{address}: the port is in use")),
        _ => CliFault::Failed(format!("{address}: cannot listen: {error}")),
    })
}
