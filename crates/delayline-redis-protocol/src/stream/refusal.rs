//! Streams, and where they note that the server refused the TLS session.

use std::sync::{Arc, OnceLock};

use delayline_core::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// A TCP, TLS or unix socket stream.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {
    /// Returns where the stream notes that the server refused the TLS session.
    fn tls_refusal(&self) -> TlsRefusal {
        TlsRefusal::default()
    }
}

impl Stream for TcpStream {}
impl Stream for UnixStream {}

/// Whether the server of a [`Stream`] refused the TLS session.
///
/// With TLS 1.3, the handshake ends for a client before the server has checked the client's
/// certificate. So a server that requires one refuses the session in place of the first reply.
#[derive(Clone, Debug, Default)]
pub struct TlsRefusal(Arc<OnceLock<Error>>);

impl TlsRefusal {
    #[cfg(feature = "tls")]
    pub(super) fn note(&self, error: Error) {
        let _ = self.0.set(error);
    }

    /// Returns the refusal, if there was one. Otherwise returns `error`, for a request without a
    /// reply.
    #[must_use]
    pub fn or(&self, error: Error) -> Error {
        self.0.get().cloned().unwrap_or(error)
    }
}
