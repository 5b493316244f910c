//! What is said on a new connection before it carries calls.

use bytes::Bytes;
use delayline_core::{Error, ErrorKind};
use delayline_redis_protocol::{CallError, ConnectOptions, Connection, Resp, classify};
use redis::RedisError;

/// Chooses the protocol, logs in and selects the database.
pub(crate) async fn log_in(
    connection: &impl Connection,
    options: &ConnectOptions,
) -> Result<(), Error> {
    match (options.resp, options.exposed_login()) {
        (Resp::V2, None) => {}
        (Resp::V2, Some((None, password))) => said(connection, "AUTH", &[password]).await?,
        (Resp::V2, Some((Some(user), password))) => {
            said(connection, "AUTH", &[user, password]).await?;
        }
        (Resp::V3, None) => hello(connection, &["3"]).await?,
        (Resp::V3, Some((user, password))) => {
            hello(connection, &["3", "AUTH", user.unwrap_or("default"), password]).await?;
        }
    }
    if options.database != 0 {
        select(connection, options.database).await?;
    }
    Ok(())
}

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

async fn select(connection: &impl Connection, number: u32) -> Result<(), Error> {
    said(connection, "SELECT", &[&number.to_string()]).await.map_err(|error| match error.kind() {
        // The words depend on how far out of range the number is.
        ErrorKind::Server => {
            Error::with_detail(ErrorKind::Unsupported("the database number"), error.detail())
        }
        _ => error,
    })
}

/// `HELLO`, which servers before Redis 6 don't know.
async fn hello(connection: &impl Connection, args: &[&str]) -> Result<(), Error> {
    said(connection, "HELLO", args).await.map_err(|error| match error.kind() {
        ErrorKind::Unsupported(_) => {
            Error::with_detail(ErrorKind::Unsupported("RESP3"), error.detail())
        }
        _ => error,
    })
}

async fn said(
    connection: &impl Connection,
    command: &'static str,
    args: &[&str],
) -> Result<(), Error> {
    let args = args.iter().map(|arg| Bytes::copy_from_slice(arg.as_bytes())).collect();
    match connection.request(command, args).await {
        Ok(_) => Ok(()),
        Err(CallError::Reply(line)) => Err(classify(&line)),
        Err(CallError::Failed(error)) => Err(error),
    }
}
