//! The handshake on a new connection, for drivers that leave it to us.

use bytes::Bytes;
use delayline_core::{Error, ErrorKind};

use crate::{CallError, ConnectOptions, Connection, Resp};

/// Who logs in without a user name.
const DEFAULT_USER: &str = "default";

/// Logs in, selects the protocol and selects the database. The caller sets a time limit.
///
/// A password for the default user of a server that requires none is refused.
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
    match options.exposed_login() {
        None => {}
        // Of all forms, only this one is refused by a server that requires no password.
        Some((None | Some(DEFAULT_USER), password)) if !password.is_empty() => {
            said(connection, "AUTH", &[password]).await?;
        }
        Some((user, password)) => {
            said(connection, "AUTH", &[user.unwrap_or(DEFAULT_USER), password]).await?;
        }
    }
    match options.resp {
        Resp::V2 => {}
        Resp::V3 => hello(connection).await?,
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
async fn hello(connection: &impl Connection) -> Result<(), Error> {
    said(connection, "HELLO", &["3"]).await.map_err(|error| match error.kind() {
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
