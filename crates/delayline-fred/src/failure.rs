//! Converts fred's errors.
//!
//! An error of fred is a kind and a text. While connecting, the text is either the server's line or
//! the `Debug` text of an I/O or rustls error; it is never passed on unchanged.

use delayline_core::{Error, ErrorClass, ErrorKind};
use delayline_redis_protocol::classify;
use fred::error::{Error as FredError, ErrorKind as FredKind};

/// The error for a command that returned no frame.
pub(crate) fn of_request(error: &FredError) -> Error {
    match error.kind() {
        // fred 10.1.0 cancels only commands that the router has not taken yet.
        FredKind::Canceled => not_sent(),
        FredKind::Backpressure => Error::new(ErrorKind::Overloaded),
        FredKind::Protocol | FredKind::Parse => {
            Error::with_detail(ErrorKind::Protocol, "the reply is not RESP")
        }
        FredKind::Timeout => Error::new(ErrorKind::Timeout),
        _ => Error::new(ErrorKind::ConnectionLost),
    }
}

/// The server's line, if fred has closed the connection because of `CLUSTERDOWN`. It ends all
/// unanswered requests with that line: see [`Order`](crate::order::Order).
pub(crate) fn cluster_down(error: &FredError) -> Option<String> {
    let is_it =
        error.kind() == &FredKind::Cluster && error.details().trim().starts_with("CLUSTERDOWN");
    is_it.then(|| error.details().trim().to_owned())
}

/// The error for a command that was certainly not sent.
pub(crate) fn not_sent() -> Error {
    let detail = "the connection was lost before the call was sent";
    Error::with_detail(ErrorKind::Unreachable, detail)
}

/// The error for a refused `HELLO`.
pub(crate) fn of_hello(error: &FredError) -> Error {
    let error = refusal(error.details());
    match error.kind() {
        ErrorKind::Unsupported(_) => {
            Error::with_detail(ErrorKind::Unsupported("RESP3"), error.detail())
        }
        _ => error,
    }
}

/// The error for a client that could not connect, or whose connection has ended, so that nothing
/// more was sent.
#[cfg_attr(not(feature = "tls"), expect(unused_variables, reason = "there is no TLS"))]
pub(crate) fn of_connecting(error: &FredError, tls: bool) -> Error {
    match error.kind() {
        #[cfg(feature = "tls")]
        FredKind::Tls => delayline_redis_protocol::tls::failure(error.details()),
        // tokio-rustls passes what rustls finds as I/O errors of this kind.
        #[cfg(feature = "tls")]
        FredKind::IO if tls && error.details().contains("InvalidData") => {
            delayline_redis_protocol::tls::failure(error.details())
        }
        FredKind::IO => Error::with_detail(ErrorKind::Unreachable, io_detail(error.details())),
        FredKind::Timeout => Error::with_detail(ErrorKind::Unreachable, "no answer in time"),
        FredKind::Config => Error::new(ErrorKind::Unsupported("the client's configuration")),
        _ => refusal(error.details()),
    }
}

/// The server's reply to the login, if it is one.
fn refusal(line: &str) -> Error {
    let error = classify(line);
    match error.class() {
        ErrorClass::NotExecuted | ErrorClass::Rejected => error,
        ErrorClass::Ambiguous if begins_with_code(line) => {
            Error::with_detail(ErrorKind::Unreachable, error.to_string())
        }
        ErrorClass::Ambiguous => {
            Error::with_detail(ErrorKind::Unreachable, "the server did not answer the login")
        }
    }
}

/// Whether the text is a server's line with an unknown code. fred's own texts begin with no word in
/// capitals.
fn begins_with_code(text: &str) -> bool {
    let code = text.split(' ').next().unwrap_or_default();
    code.len() > 2 && code.bytes().all(|byte| byte.is_ascii_uppercase())
}

/// Finds known words in the `Debug` text of an I/O error.
fn io_detail(text: &str) -> &'static str {
    const WORDS: [(&str, &str); 9] = [
        ("ConnectionRefused", "connection refused"),
        ("NotFound", "no such socket"),
        ("PermissionDenied", "permission denied"),
        ("failed to lookup address", "unknown host"),
        ("ConnectionReset", "connection reset"),
        ("UnexpectedEof", "connection closed"),
        ("BrokenPipe", "connection closed"),
        ("Connection closed", "connection closed"),
        // In the middle of a reply.
        ("bytes remaining on stream", "connection closed"),
    ];
    WORDS.iter().find(|(word, _)| text.contains(word)).map_or("", |(_, words)| words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_certainly_unsent_commands_are_not_executed() {
        let class = |kind| of_request(&FredError::new(kind, "secret")).class();
        assert_eq!(class(FredKind::Canceled), ErrorClass::NotExecuted);
        assert_eq!(class(FredKind::Backpressure), ErrorClass::NotExecuted);
        for kind in [FredKind::IO, FredKind::Unknown, FredKind::Timeout, FredKind::Protocol] {
            assert_eq!(class(kind), ErrorClass::Ambiguous);
        }
    }

    #[test]
    fn failure_to_connect_has_its_kind() {
        let kind = |kind, details: &'static str, tls| {
            of_connecting(&FredError::new(kind, details), tls).kind().clone()
        };
        let certificate = "Custom { kind: InvalidData, error: InvalidCertificate(UnknownIssuer) }";
        let refused = "Os { code: 111, kind: ConnectionRefused, message: \"Connection refused\" }";
        #[cfg(feature = "tls")]
        assert_eq!(kind(FredKind::IO, certificate, true), ErrorKind::Tls);
        assert_eq!(kind(FredKind::IO, certificate, false), ErrorKind::Unreachable);
        assert_eq!(kind(FredKind::IO, refused, true), ErrorKind::Unreachable);
        assert_eq!(kind(FredKind::IO, refused, false), ErrorKind::Unreachable);
        assert_eq!(kind(FredKind::Auth, "WRONGPASS no", false), ErrorKind::Authentication);
        assert_eq!(
            kind(FredKind::Unknown, "ERR invalid password", false),
            ErrorKind::Authentication
        );
        assert_eq!(kind(FredKind::Unknown, "LOADING wait", false), ErrorKind::Busy);
        assert_eq!(kind(FredKind::Unknown, "gibberish", false), ErrorKind::Unreachable);
        let hello = FredError::new(FredKind::Unknown, "ERR unknown command 'HELLO'");
        assert_eq!(of_hello(&hello).kind(), &ErrorKind::Unsupported("RESP3"));
    }

    #[test]
    fn texts_of_fred_are_not_passed_on() {
        for kind in [FredKind::IO, FredKind::Unknown, FredKind::Timeout, FredKind::Protocol] {
            for error in [
                of_connecting(&FredError::new(kind.clone(), "secret"), true),
                of_request(&FredError::new(kind, "secret")),
            ] {
                assert!(!format!("{error:?}").contains("secret"), "{error:?}");
            }
        }
    }
}
