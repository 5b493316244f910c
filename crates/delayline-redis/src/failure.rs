//! Converts redis-rs' errors while connecting.

use std::error::Error as _;
use std::io;

use delayline_core::{Error, ErrorKind};
use delayline_redis_protocol::classify;
use redis::RedisError;

/// The error for a connection that redis-rs could not open.
pub(crate) fn failure(error: &RedisError) -> Error {
    if let Some(code) = error.code() {
        return classify(&format!("{code} {}", error.detail().unwrap_or_default()));
    }
    match error.kind() {
        redis::ErrorKind::AuthenticationFailed => {
            // The detail is the server's reply, which could repeat the request.
            let answer = classify(error.detail().unwrap_or_default());
            Error::with_detail(ErrorKind::Authentication, answer.detail())
        }
        redis::ErrorKind::RESP3NotSupported => Error::new(ErrorKind::Unsupported("RESP3")),
        redis::ErrorKind::InvalidClientConfig => Error::with_detail(
            ErrorKind::Unsupported("the client's configuration"),
            category(error),
        ),
        _ => {
            #[cfg(feature = "tls")]
            if let Some(error) = of_io(error).and_then(delayline_redis_protocol::tls::failure_of) {
                return error;
            }
            Error::with_detail(ErrorKind::Unreachable, category(error))
        }
    }
}

/// A description of the error that cannot contain a password.
fn category(error: &RedisError) -> String {
    match of_io(error) {
        Some(io) => io.kind().to_string(),
        None => error.category().to_owned(),
    }
}

fn of_io(error: &RedisError) -> Option<&io::Error> {
    error.source()?.downcast_ref()
}
