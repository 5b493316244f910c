//! What a failure says about the connection it happened on.

use std::time::Duration;

use delayline_core::{Error, ErrorKind};

use crate::{CallError, classify};

/// The state of a connection after a failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    /// The server answered, or nothing was sent: the connection works.
    Good,
    /// It brings no replies any more, or they can't be read.
    Lost,
    /// It works, but a new one may lead to a server that serves: after a failover, the address of
    /// the primary leads to another server, but old connections stay with the replica (`READONLY`).
    /// A user whose rules have changed must log in again (`NOAUTH`).
    Refused,
}

/// Judges the connection by the failure of a request.
pub(crate) fn health_after(error: &CallError) -> Health {
    match error {
        CallError::Reply(line) => match classify(line).kind() {
            ErrorKind::ReadOnly | ErrorKind::Authentication => Health::Refused,
            _ => Health::Good,
        },
        CallError::Failed(error) => match error.kind() {
            ErrorKind::Overloaded | ErrorKind::Invalid(_) | ErrorKind::Unsupported(_) => {
                Health::Good
            }
            _ => Health::Lost,
        },
    }
}

/// The error for a call that finds the last connection lost and may not connect yet.
pub(crate) fn lost() -> Error {
    Error::with_detail(ErrorKind::Unreachable, "connections are lost repeatedly")
}

/// The error of a request without a reply within `bound`.
pub(crate) fn no_reply(bound: Duration) -> Error {
    Error::with_detail(ErrorKind::Timeout, format!("waited {bound:?}"))
}

/// The error of a command whose reply has the wrong type.
pub(crate) fn unexpected(command: &str) -> Error {
    Error::with_detail(ErrorKind::Protocol, format!("the reply to {command} has the wrong type"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_leave_the_connection_good_except_refusals() {
        let health = |line: &str| health_after(&CallError::Reply(line.to_owned()));
        assert_eq!(health("NOSCRIPT No matching script."), Health::Good);
        assert_eq!(health("OOM command not allowed when used memory > 'maxmemory'."), Health::Good);
        assert_eq!(
            health("READONLY You can't write against a read only replica."),
            Health::Refused
        );
        assert_eq!(health("NOAUTH Authentication required."), Health::Refused);
    }

    #[test]
    fn failures_lose_the_connection_except_own_limits() {
        let health = |kind| health_after(&CallError::Failed(Error::new(kind)));
        assert_eq!(health(ErrorKind::Overloaded), Health::Good);
        assert_eq!(health(ErrorKind::Timeout), Health::Lost);
        assert_eq!(health(ErrorKind::ConnectionLost), Health::Lost);
        assert_eq!(health(ErrorKind::Protocol), Health::Lost);
        assert_eq!(health(ErrorKind::Unreachable), Health::Lost);
    }
}
