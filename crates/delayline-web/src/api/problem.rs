//! Errors as `application/problem+json` (RFC 9457).

use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::response::{IntoResponse, Response};
use delayline::{Error, ErrorClass};
use serde_json::{Map, Value, json};

use crate::Rights;
use crate::failure::{Failure, told};

/// A failure, said to a program.
#[derive(Debug)]
pub(crate) struct Problem(pub(crate) Failure);

impl<F: Into<Failure>> From<F> for Problem {
    fn from(failure: F) -> Self {
        Self(failure.into())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        self.0.into_response()
    }
}

/// Returns a failure as a problem, with the details that the visitor may see.
pub(crate) fn of(failure: &Failure, rights: Rights) -> Response {
    let mut more = Map::new();
    match failure {
        Failure::Queue(error) => {
            more.insert("class".to_owned(), error.class().name().into());
        }
        Failure::Items(items) => {
            let items = items.iter().take(MOST_ITEMS);
            let items = items.map(|(index, detail)| json!({"index": index, "detail": detail}));
            more.insert("errors".to_owned(), items.collect());
        }
        _ => {}
    }
    problem(failure.status(), &failure.detail_for(rights), more)
}

/// A problem with further members.
pub(super) fn problem(status: StatusCode, detail: &str, more: Map<String, Value>) -> Response {
    let mut object = more;
    object.insert("type".to_owned(), "about:blank".into());
    object.insert("title".to_owned(), status.canonical_reason().into());
    object.insert("status".to_owned(), status.as_u16().into());
    object.insert("detail".to_owned(), detail.into());
    let body = delayline_json::harmless_json(Value::Object(object).to_string());
    let headers = [(CONTENT_TYPE, "application/problem+json")];
    let wait = match status {
        StatusCode::SERVICE_UNAVAILABLE => "1",
        StatusCode::TOO_MANY_REQUESTS => "10",
        _ => return (status, headers, body).into_response(),
    };
    (status, headers, [(RETRY_AFTER, wait)], body).into_response()
}

/// Some items of a request failed: the problem has the results of all, and the status of the first
/// error. If all items failed in the same class, the problem has it; else, some were done.
pub(super) fn failed_items(first: Error, detail: &str, results: Value) -> Response {
    let all = results.as_array().map_or(&[][..], Vec::as_slice);
    let is_first = |item: &Value| item["class"] == first.class().name();
    let of_all = if all.iter().all(is_first) { first.class() } else { ErrorClass::Ambiguous };
    let class = of_all.name().into();
    let more = Map::from_iter([("results".to_owned(), results), ("class".to_owned(), class)]);
    problem(Failure::Queue(first).status(), detail, more)
}

/// The outcome of an item that is not known to be done.
pub(super) fn failed(error: &Error, rights: Rights) -> Map<String, Value> {
    Map::from_iter([
        ("outcome".to_owned(), "failed".into()),
        ("class".to_owned(), error.class().name().into()),
        ("detail".to_owned(), told(error, rights).into()),
    ])
}

/// An answer.
pub(super) fn answer(status: StatusCode, value: &Value) -> Response {
    let body = delayline_json::harmless_json(value.to_string());
    (status, [(CONTENT_TYPE, "application/json")], body).into_response()
}

/// Maximum number of invalid items that the reply to a batch lists.
const MOST_ITEMS: usize = 20;
