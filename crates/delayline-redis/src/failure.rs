//! From redis-rs' errors while connecting to ours.

use delayline_core::{Error, ErrorKind};
use delayline_redis_protocol::classify;
use redis::RedisError;

/// The kind of an error with which redis-rs gives up on a new connection.
pub(crate) fn failure(error: &RedisError) -> Error {
    if let Some(code) = error.code() {
        return classify(&format!("{code} {}", error.detail().unwrap_or_default()));
    }
    match error.kind() {
        redis::ErrorKind::AuthenticationFailed => {
            // The detail is the server's answer, which could repeat what was sent.
            let answer = classify(error.detail().unwrap_or_default());
            Error::with_detail(ErrorKind::Authentication, answer.detail())
        }
        redis::ErrorKind::RESP3NotSupported => Error::new(ErrorKind::Unsupported("RESP3")),
        redis::ErrorKind::InvalidClientConfig => Error::with_detail(
            ErrorKind::Unsupported("the client's configuration"),
            category(error),
        ),
        _ => Error::with_detail(ErrorKind::Unreachable, category(error)),
    }
}

/// What happened, in words that can't hold a password.
fn category(error: &RedisError) -> String {
    match std::error::Error::source(error)
        .and_then(|source| source.downcast_ref::<std::io::Error>())
    {
        Some(io) => io.kind().to_string(),
        None => error.category().to_owned(),
    }
}
