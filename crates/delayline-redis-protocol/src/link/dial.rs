//! One attempt to connect, from the first packet to the answered `PING`.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use delayline_core::{Error, ErrorClass, ErrorKind};
use tokio::time::timeout;

use super::driver::{Connection, Driver};
use crate::CallError;
use crate::classify::{classify, is_forbidden};

/// Makes connections that work, each within the same time.
#[derive(Debug)]
pub(crate) struct Dial<D> {
    driver: D,
    limit: Duration,
    /// The scheme of the address is right: there was a connection.
    has_connected: AtomicBool,
}

impl<D: Driver> Dial<D> {
    pub(crate) fn new(driver: D, limit: Duration) -> Self {
        Self { driver, limit, has_connected: AtomicBool::new(false) }
    }

    /// The driver, which knows its address and its database.
    pub(crate) fn driver(&self) -> &D {
        &self.driver
    }

    /// The time limit of an attempt.
    pub(crate) const fn limit(&self) -> Duration {
        self.limit
    }

    /// The error with the address, if it is about the connection and does not name it yet.
    pub(crate) fn named(&self, error: Error) -> Error {
        if !matches!(
            error.kind(),
            ErrorKind::Unreachable
                | ErrorKind::Tls
                | ErrorKind::Authentication
                | ErrorKind::ConnectionLost
                | ErrorKind::Timeout
        ) {
            return error;
        }
        let address = self.address();
        match error.detail() {
            "" => Error::with_detail(error.kind().clone(), address),
            detail if detail.starts_with(&address) => error,
            detail => Error::with_detail(error.kind().clone(), format!("{address}: {detail}")),
        }
    }

    /// The same for an attempt to connect, with what may be wrong with the address.
    fn not_connected(&self, error: Error) -> Error {
        let is_silent = error.kind() == &ErrorKind::Unreachable && fell_silent(error.detail());
        let error = self.named(error);
        if !is_silent || self.has_connected.load(Ordering::Relaxed) {
            return error;
        }
        let hint = tls_hint(&self.address());
        Error::with_detail(error.kind().clone(), format!("{}{hint}", error.detail()))
    }

    fn address(&self) -> String {
        format!("{:?}", self.driver)
    }

    /// Makes one connection.
    ///
    /// # Errors
    ///
    /// What failed; never of [`ErrorClass::Ambiguous`], because no operation was sent.
    pub(crate) async fn dial(&self) -> Result<D::Connection, Error> {
        self.in_time(self.working()).await
    }

    /// Makes one connection with this name, or without one where names are refused: they are for
    /// operators only.
    ///
    /// # Errors
    ///
    /// Like [`dial`](Self::dial).
    pub(crate) async fn dial_named(&self, name: Bytes) -> Result<D::Connection, Error> {
        self.in_time(async {
            let connection = self.working().await?;
            let naming = connection.request("CLIENT", set_name(name));
            match timeout(self.limit / 4, naming).await {
                Ok(Ok(_) | Err(CallError::Reply(_))) => Ok(connection),
                // Some proxies close a connection, or fall silent, instead of refusing a command.
                Ok(Err(CallError::Failed(_))) | Err(_) => self.working().await,
            }
        })
        .await
    }

    async fn working(&self) -> Result<D::Connection, Error> {
        let connection = self.driver.connect().await?;
        ping(&connection).await?;
        self.has_connected.store(true, Ordering::Relaxed);
        Ok(connection)
    }

    async fn in_time(
        &self,
        attempt: impl Future<Output = Result<D::Connection, Error>>,
    ) -> Result<D::Connection, Error> {
        let attempt = timeout(self.limit, attempt);
        let detail = || format!("no connection within {:?}", self.limit);
        let outcome = attempt.await;
        let outcome =
            outcome.unwrap_or_else(|_| Err(Error::with_detail(ErrorKind::Unreachable, detail())));
        outcome.map_err(|error| self.not_connected(before_sending(error)))
    }
}

/// The arguments of `CLIENT` that name a connection.
pub(crate) fn set_name(name: Bytes) -> Vec<Bytes> {
    vec![Bytes::from_static(b"SETNAME"), name]
}

/// A new connection is worth nothing if its server is frozen or loading, or if something else
/// accepted it.
async fn ping(connection: &impl Connection) -> Result<(), Error> {
    match connection.request("PING", Vec::new()).await {
        Ok(_) => Ok(()),
        // A user who may run the scripts need not be allowed to ping, nor the server have it.
        Err(CallError::Reply(line)) if is_forbidden(&line) => Ok(()),
        Err(CallError::Reply(line)) => Err(classify(&line)),
        Err(CallError::Failed(error)) => Err(error),
    }
}

/// Whether a peer accepted the connection and then fell silent, as a peer does if only one side
/// uses TLS. A server that answers with an error is not silent, whatever its words are.
fn fell_silent(detail: &str) -> bool {
    const WORDS: [&str; 7] =
        ["no connection within", "answer", "lost", "closed", "reset", "eof", "understood"];
    !detail.starts_with(&ErrorKind::Server.to_string())
        && WORDS.iter().any(|word| detail.contains(word))
}

/// Neither side can tell that the other one speaks TLS, or does not.
fn tls_hint(address: &str) -> &'static str {
    if address.starts_with("rediss://") {
        "; if the server does not speak TLS, use redis://"
    } else if address.starts_with("redis://") {
        "; if the server expects TLS, use rediss://"
    } else {
        ""
    }
}

/// The same failure in its right class.
pub(crate) fn before_sending(error: Error) -> Error {
    match error.class() {
        ErrorClass::NotExecuted | ErrorClass::Rejected => error,
        ErrorClass::Ambiguous => Error::with_detail(ErrorKind::Unreachable, error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_attempt_to_connect_is_never_ambiguous() {
        let error = before_sending(Error::with_detail(ErrorKind::Timeout, "waited 2s"));
        assert_eq!(error.kind(), &ErrorKind::Unreachable);
        assert!(error.detail().contains("waited 2s"));
        let error = before_sending(Error::new(ErrorKind::Tls));
        assert_eq!(error.kind(), &ErrorKind::Tls);
    }
}
