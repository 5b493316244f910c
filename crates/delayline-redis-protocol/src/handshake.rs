//! The handshake on a new connection, for drivers that leave it to us.

use bytes::Bytes;
use delayline_core::{Error, ErrorKind};

use crate::{CallError, ConnectOptions, Connection, Resp};

/// Selects the protocol, logs in and selects the database. It has no time limit of its own.
///
/// # Cancel safety
///
/// If the future is dropped, the connection may be logged in or not: close it.
///
/// # Errors
///
/// [`ErrorKind::Authentication`]; [`ErrorKind::Unsupported`] for the protocol or the database; or
/// any error of the connection.
pub async fn log_in(connection: &impl Connection, options: &ConnectOptions) -> Result<(), Error> {
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

async fn select(connection: &impl Connection, number: u32) -> Result<(), Error> {
    said(connection, "SELECT", &[&number.to_string()]).await.map_err(|error| match error.kind() {
        // The words depend on how far out of range the number is.
        ErrorKind::Server => {
            Error::with_detail(ErrorKind::Unsupported("the database number"), error.detail())
        }
        _ => error,
    })
}

/// `HELLO`, which servers before Redis 6 do not have.
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
    connection.request(command, args).await.map(drop).map_err(CallError::into_error)
}
