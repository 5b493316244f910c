//! Why a request is not answered as it was asked.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use delayline::{Error, ErrorClass, ErrorKind, Violation};

use crate::{Rights, Role};

#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// The queue's backend refused or failed.
    Queue(Error),
    /// The backend answered something else than it was asked.
    Protocol,
    /// The task that did it ended without a result.
    Aborted,
    /// Why the request makes no sense, in words.
    Wrong(String),
    /// Some items of a list make no sense: their places from 0, and why. Nothing was done.
    Items(Vec<(usize, String)>),
    /// There is no such page, queue or message, in words.
    Unknown(String),
    /// The path does not support the method.
    Method,
    /// Something else has to end before, in words.
    Busy(String),
    /// The visitor may not do that.
    Forbidden { needs: Role },
    /// A browser says that another site made it send this.
    Forged,
    /// The request has no valid login. `asks`: whether a user and a password would help.
    Unauthenticated { asks: bool },
    /// There were too many failed logins.
    Slowed,
    /// The body is longer than this many bytes.
    TooLarge(usize),
    /// The body did not arrive in time.
    Slow,
    /// The requests under way leave no memory, or no turn, for this one.
    Crowded,
    /// The body is of another type than these.
    MediaType(&'static [&'static str]),
    /// The body is compressed, or encoded in another way.
    Encoded,
}

impl Failure {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Queue(error) => status_of(error),
            Self::Protocol => StatusCode::BAD_GATEWAY,
            Self::Aborted => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Wrong(_) | Self::Items(_) => StatusCode::BAD_REQUEST,
            Self::Unknown(_) => StatusCode::NOT_FOUND,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Slowed => StatusCode::TOO_MANY_REQUESTS,
            Self::Busy(_) => StatusCode::CONFLICT,
            Self::Forbidden { .. } | Self::Forged | Self::Unauthenticated { asks: false } => {
                StatusCode::FORBIDDEN
            }
            Self::Unauthenticated { asks: true } => StatusCode::UNAUTHORIZED,
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Slow => StatusCode::REQUEST_TIMEOUT,
            Self::Crowded => StatusCode::SERVICE_UNAVAILABLE,
            Self::MediaType(_) | Self::Encoded => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        }
    }

    /// Returns the detail as a visitor with these rights may see it.
    pub(crate) fn detail_for(&self, rights: Rights) -> String {
        match self {
            Self::Queue(error) => told(error, rights),
            _ => self.detail(),
        }
    }

    /// All of it, for the log.
    pub(crate) fn detail(&self) -> String {
        match self {
            Self::Queue(error) => error.to_string(),
            Self::Protocol => "the reply belongs to another operation".to_owned(),
            Self::Aborted => "it was aborted; whether it was done is unknown".to_owned(),
            Self::Wrong(why) | Self::Unknown(why) | Self::Busy(why) => why.clone(),
            Self::Items(items) => {
                let (count, are) = (items.len(), if items.len() == 1 { "is" } else { "are" });
                format!("{count} of the items {are} not valid; nothing was done")
            }
            Self::Forbidden { needs } => {
                format!("this needs the role {}; nothing was done", needs.name())
            }
            Self::Forged => "the request comes from another site; nothing was done".to_owned(),
            Self::Method => "this path does not support this method".to_owned(),
            Self::Slowed => "there were too many failed logins; try again later".to_owned(),
            Self::Unauthenticated { .. } => "a valid login is required".to_owned(),
            Self::TooLarge(limit) => {
                format!("the body is longer than {limit} bytes; nothing was done")
            }
            Self::Slow => "the body did not arrive in time; nothing was done".to_owned(),
            Self::Crowded => {
                "too many large requests, or requests for unknown queues, are under way; nothing was \
                 done; try again later".to_owned()
            }
            Self::MediaType(types) => {
                format!("the header content-type must be {} in UTF-8", types.join(" or "))
            }
            Self::Encoded => {
                "the header content-encoding must be absent: bodies are read as they are".to_owned()
            }
        }
    }

    /// What a caller may do now, in words; empty if the detail says it all.
    pub(crate) fn advice(&self) -> &'static str {
        match self {
            Self::Queue(error) => match error.class() {
                ErrorClass::NotExecuted => "Nothing was changed. Reload the page to try again.",
                ErrorClass::Rejected => "Nothing was changed.",
                ErrorClass::Ambiguous => "Whether it was done is unknown. It is safe to repeat it.",
            },
            _ => "",
        }
    }
}

/// The status of a backend's error: 400 for input outside of a limit, 503 if it may work later, 504
/// if the outcome is unknown, 502 if the server refuses.
fn status_of(error: &Error) -> StatusCode {
    match error.kind() {
        ErrorKind::Invalid(_) | ErrorKind::Encode | ErrorKind::Decode => StatusCode::BAD_REQUEST,
        ErrorKind::Unsupported(_) => StatusCode::NOT_IMPLEMENTED,
        _ => match error.class() {
            ErrorClass::NotExecuted => StatusCode::SERVICE_UNAVAILABLE,
            ErrorClass::Ambiguous => StatusCode::GATEWAY_TIMEOUT,
            ErrorClass::Rejected => StatusCode::BAD_GATEWAY,
        },
    }
}

/// Says that `owner` has the `kind` of this name, but may only have those in `known`.
pub(crate) fn unknown<'a>(
    owner: &str,
    kind: &str,
    name: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> String {
    let name: String = name.chars().take(MOST_NAMED).collect();
    let known: Vec<&str> = known.into_iter().collect();
    let may = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    format!("{owner} has the unknown {kind} {name:?}; it may have {may}")
}

/// Characters of an unknown name that an answer repeats.
const MOST_NAMED: usize = 40;

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Queue(error)
    }
}

impl From<Violation> for Failure {
    fn from(violation: Violation) -> Self {
        Self::Queue(violation.into())
    }
}

/// Returns an error as a visitor with these rights may see it: its details name addresses, and may
/// name more that is of the server.
pub(crate) fn told(error: &Error, rights: Rights) -> String {
    if rights.include(Role::Operator) { error.to_string() } else { error.kind().to_string() }
}

/// An answer that has only its status yet: [`guard`](crate::guard), which knows the visitor and the
/// path, writes the body.
#[derive(Clone)]
pub(crate) struct Unsaid(pub(crate) Arc<Failure>);

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = self.status().into_response();
        response.extensions_mut().insert(Unsaid(Arc::new(self)));
        response
    }
}
