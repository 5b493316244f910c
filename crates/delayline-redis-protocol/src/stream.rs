//! The byte stream under a connection (TCP, TLS or a unix socket), for drivers that do not open
//! their own.

mod refusal;
#[cfg(feature = "tls")]
mod session;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use delayline_core::{Error, ErrorKind};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::task::JoinSet;
use tokio::time::timeout;

pub use self::refusal::{Stream, TlsRefusal};
use crate::{Address, SocketPath, TCP_UPKEEP};

/// How long an attempt may take before the next address of the host is tried as well.
const NEXT_AFTER: Duration = Duration::from_millis(250);

/// Opens streams to one address.
pub struct Dialer {
    address: Address,
    #[cfg(feature = "tls")]
    tls: Option<tokio_rustls::TlsConnector>,
}

impl Dialer {
    /// Creates a dialer for `address`. TLS trusts the authorities in `ca_pem`, or else the
    /// system's.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Tls`] if the authorities cannot be read, `Unsupported` if the address requires
    /// TLS and this build has none.
    #[cfg(feature = "tls")]
    pub fn new(address: &Address, ca_pem: Option<&[u8]>) -> Result<Self, Error> {
        let tls = match address {
            Address::Tls { .. } => {
                let config = crate::tls::client_config(ca_pem)?;
                Some(std::sync::Arc::new(config).into())
            }
            Address::Tcp { .. } | Address::Unix(_) => None,
        };
        Ok(Self { address: address.clone(), tls })
    }

    /// Creates a dialer for `address`. This build has no TLS.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] if the address requires TLS.
    #[cfg(not(feature = "tls"))]
    pub fn new(address: &Address, _ca_pem: Option<&[u8]>) -> Result<Self, Error> {
        match address {
            Address::Tls { .. } => Err(without_tls()),
            Address::Tcp { .. } | Address::Unix(_) => Ok(Self { address: address.clone() }),
        }
    }

    /// Opens one stream. The caller sets a time limit.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the stream.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unreachable`], [`ErrorKind::Tls`], or that of [`SocketPath::of`].
    pub async fn dial(&self) -> Result<Box<dyn Stream>, Error> {
        match &self.address {
            Address::Tcp { host, port } => Ok(Box::new(tcp(host, *port).await?)),
            Address::Unix(path) => {
                let path = SocketPath::of(path)?;
                let stream = UnixStream::connect(path.as_path()).await;
                Ok(Box::new(stream.map_err(|error| unreachable(&error))?))
            }
            Address::Tls { host, port } => self.tls(host, *port).await,
        }
    }

    #[cfg(feature = "tls")]
    async fn tls(&self, host: &str, port: u16) -> Result<Box<dyn Stream>, Error> {
        use tokio_rustls::rustls::pki_types::ServerName;

        use self::session::Session;

        let Some(connector) = &self.tls else {
            return Err(without_tls());
        };
        let name = ServerName::try_from(host.to_owned()).map_err(|_| {
            Error::with_detail(ErrorKind::Tls, "the host cannot appear in a certificate")
        })?;
        let stream = connector.connect(name, tcp(host, port).await?).await;
        Ok(Box::new(Session::new(stream.map_err(|error| tls_failure(&error))?)))
    }

    #[cfg(not(feature = "tls"))]
    #[expect(clippy::unused_async, reason = "the same signature in both builds")]
    async fn tls(&self, _host: &str, _port: u16) -> Result<Box<dyn Stream>, Error> {
        Err(without_tls())
    }
}

async fn tcp(host: &str, port: u16) -> Result<TcpStream, Error> {
    let stream = async {
        let addresses = lookup_host((host, port)).await?;
        let stream = first_of(addresses.map(TcpStream::connect)).await?;
        configure(&stream)?;
        Ok(stream)
    };
    stream.await.map_err(|error| unreachable(&error))
}

/// Returns an address of a host, for drivers whose library tries the addresses one after the other.
/// If there are several, it is the first one that can be connected to. The caller sets a time
/// limit.
///
/// # Cancel safety
///
/// Dropping the future closes all sockets.
///
/// # Errors
///
/// [`ErrorKind::Unreachable`].
pub async fn reachable_address(host: &str, port: u16) -> Result<SocketAddr, Error> {
    let address = async {
        let addresses: Vec<_> = lookup_host((host, port)).await?.collect();
        match addresses[..] {
            [address] => Ok(address),
            _ => first_of(addresses.into_iter().map(reached)).await,
        }
    };
    address.await.map_err(|error| unreachable(&error))
}

async fn reached(address: SocketAddr) -> io::Result<SocketAddr> {
    TcpStream::connect(address).await.map(|_| address)
}

/// The first success of several attempts. Each begins when the one before it has failed, or has
/// taken [`NEXT_AFTER`]: a host may have an address that nothing answers at.
async fn first_of<T: Send + 'static>(
    attempts: impl Iterator<Item: Future<Output = io::Result<T>> + Send + 'static>,
) -> io::Result<T> {
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    let (mut attempts, mut running) = (attempts.fuse(), JoinSet::new());
    loop {
        let is_last = attempts.next().map(|attempt| running.spawn(attempt)).is_none();
        let ended = if is_last {
            running.join_next().await
        } else {
            match timeout(NEXT_AFTER, running.join_next()).await {
                Ok(ended) => ended,
                Err(_) => continue,
            }
        };
        match ended {
            Some(Ok(Ok(stream))) => return Ok(stream),
            Some(Ok(Err(error))) => failure = error,
            Some(Err(error)) => failure = error.into(),
            None => return Err(failure),
        }
    }
}

fn configure(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(
        &TcpKeepalive::new()
            .with_time(TCP_UPKEEP.keepalive_idle)
            .with_interval(TCP_UPKEEP.keepalive_interval)
            .with_retries(TCP_UPKEEP.keepalive_probes),
    )?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(TCP_UPKEEP.user_timeout))?;
    Ok(())
}

fn unreachable(error: &io::Error) -> Error {
    Error::with_detail(ErrorKind::Unreachable, error.to_string())
}

/// Distinguishes a refused certificate or protocol from a server that disconnected during the
/// handshake.
#[cfg(feature = "tls")]
fn tls_failure(error: &io::Error) -> Error {
    crate::tls::failure_of(error).unwrap_or_else(|| unreachable(error))
}

fn without_tls() -> Error {
    Error::new(ErrorKind::Unsupported("TLS in this build"))
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::net::Ipv4Addr;
    use std::pin::Pin;

    use tokio::net::TcpListener;
    use tokio::time::Instant;

    use super::*;

    #[tokio::test]
    async fn sockets_are_watched_over() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let stream = tcp("127.0.0.1", port).await.unwrap();
        let socket = SockRef::from(&stream);
        assert!(stream.nodelay().unwrap());
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), TCP_UPKEEP.keepalive_idle);
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), TCP_UPKEEP.keepalive_interval);
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), TCP_UPKEEP.keepalive_probes);
        #[cfg(target_os = "linux")]
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(TCP_UPKEEP.user_timeout));
    }

    #[tokio::test(start_paused = true)]
    async fn one_silent_address_of_a_host_does_not_hide_the_others() {
        let begin = Instant::now();
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        let attempts: [Pin<Box<dyn Future<Output = io::Result<u8>> + Send>>; 4] = [
            Box::pin(pending()),
            Box::pin(ready(Err(refused()))),
            Box::pin(ready(Ok(7))),
            Box::pin(ready(Ok(8))),
        ];
        assert_eq!(first_of(attempts.into_iter()).await.unwrap(), 7);
        assert_eq!(begin.elapsed().as_millis(), NEXT_AFTER.as_millis());
        let none = first_of([ready(Err::<u8, _>(refused()))].into_iter()).await;
        assert_eq!(none.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }
}
