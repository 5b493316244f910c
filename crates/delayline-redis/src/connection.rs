//! One connection of redis-rs.

use async_trait::async_trait;
use bytes::Bytes;
use delayline_core::{Error, ErrorKind};
use delayline_redis_protocol::{CallError, Connection, DriverTask, TlsRefusal, Value};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, ServerError};

/// A multiplexed connection: many tasks send requests, and replies arrive in the same order.
pub struct RedisConnection {
    inner: MultiplexedConnection,
    /// The task that reads and writes, or one that ends with it.
    pub(crate) driver: DriverTask,
    refusal: TlsRefusal,
}

impl RedisConnection {
    /// A connection that the future `driver` drives, in a new task. If redis-rs drives it already,
    /// `driver` only has to end with the connection.
    pub(crate) fn driven(
        inner: MultiplexedConnection,
        driver: impl Future<Output = ()> + Send + 'static,
        refusal: TlsRefusal,
    ) -> Self {
        let why = refusal.clone();
        let driver = DriverTask::watch(tokio::spawn(driver), move |_| lost(&why));
        Self { inner, driver, refusal }
    }
}

/// The error of a request without a reply. It may be queued, sent or executed: redis-rs does not
/// say.
fn lost(refusal: &TlsRefusal) -> Error {
    refusal.or(Error::new(ErrorKind::ConnectionLost))
}

#[async_trait]
impl Connection for RedisConnection {
    async fn request(&self, command: &'static str, args: Vec<Bytes>) -> Result<Value, CallError> {
        let mut request = Cmd::with_capacity(args.len() + 1, args.iter().map(Bytes::len).sum());
        request.arg(command);
        for arg in &args {
            request.arg(arg.as_ref());
        }
        let mut inner = self.inner.clone();
        match self.driver.unless_ended(inner.send_packed_command(&request)).await? {
            Ok(redis::Value::ServerError(error)) => Err(CallError::Reply(line(&error))),
            Ok(value) => converted(value).map_err(CallError::Failed),
            Err(error) if error.kind() == redis::ErrorKind::Parse && !is_cut(&error) => {
                Err(Error::with_detail(ErrorKind::Protocol, "the reply is not RESP").into())
            }
            Err(_) => Err(lost(&self.refusal).into()),
        }
    }

    fn is_closed(&self) -> bool {
        self.driver.has_ended()
    }
}

/// Whether the connection ended within a reply, which redis-rs 1.8.1 then parses as it is.
fn is_cut(error: &RedisError) -> bool {
    error.to_string().contains("end of input")
}

/// The server's error line, which redis-rs has split at the first space.
fn line(error: &ServerError) -> String {
    match error.details() {
        Some(details) => format!("{} {details}", error.code()),
        None => error.code().to_owned(),
    }
}

fn converted(value: redis::Value) -> Result<Value, Error> {
    Ok(match value {
        redis::Value::Nil => Value::Nil,
        redis::Value::Int(number) => Value::Int(number),
        redis::Value::BulkString(bytes) => Value::Bytes(bytes.into()),
        redis::Value::SimpleString(text) | redis::Value::VerbatimString { text, .. } => {
            Value::Bytes(text.into())
        }
        redis::Value::Okay => Value::Bytes(Bytes::from_static(b"OK")),
        redis::Value::Array(values) => array(values)?,
        // Flat, as RESP2 would send it.
        redis::Value::Map(pairs) => array(pairs.into_iter().flat_map(<[_; 2]>::from))?,
        // Without the value, which may contain a payload.
        _ => return Err(Error::with_detail(ErrorKind::Protocol, "a reply of an unexpected type")),
    })
}

fn array(values: impl IntoIterator<Item = redis::Value>) -> Result<Value, Error> {
    values.into_iter().map(converted).collect::<Result<_, _>>().map(Value::Array)
}

#[cfg(test)]
mod tests {
    use redis::{AsyncConnectionConfig, RedisConnectionInfo};
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn request_that_the_driver_left_behind_fails() {
        let (stream, _peer) = tokio::io::duplex(64);
        let bare = RedisConnectionInfo::default().set_skip_set_lib_name();
        // Never polled, it keeps the queue open and takes nothing from it.
        let (inner, _driver) =
            MultiplexedConnection::new_with_config(&bare, stream, AsyncConnectionConfig::new())
                .await
                .unwrap();
        let (end, ended) = oneshot::channel::<()>();
        let connection =
            RedisConnection::driven(inner, async { drop(ended.await) }, TlsRefusal::default());
        let request = connection.request("PING", Vec::new());
        tokio::pin!(request);
        assert!(futures_util::poll!(&mut request).is_pending());
        assert!(!connection.is_closed());
        end.send(()).unwrap();
        let Err(CallError::Failed(error)) = request.await else {
            panic!("a reply from a closed connection")
        };
        assert_eq!(error.kind(), &ErrorKind::ConnectionLost);
        assert!(connection.is_closed());
    }

    #[test]
    fn unexpected_type_is_refused_without_its_value() {
        let secret = redis::Value::SimpleString("secret".into());
        let value = redis::Value::Array(vec![redis::Value::Set(vec![secret])]);
        let error = converted(value).unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::Protocol);
        assert!(!format!("{error:?}").contains("secret"));
    }
}
