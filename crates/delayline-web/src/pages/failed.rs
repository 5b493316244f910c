//! The page of a request that failed.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use maud::html;

use super::layout;
use crate::Rights;
use crate::failure::Failure;

/// A page that shows why a request failed. `root` leads from its address to the other pages.
pub(crate) fn page(failure: &Failure, rights: Rights, root: &str) -> Response {
    let status = failure.status();
    let title = match (failure, status) {
        (Failure::Queue(_), StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT) => {
            "The queue cannot be reached"
        }
        (Failure::Queue(_), StatusCode::BAD_GATEWAY) => "The server refused",
        _ => status.canonical_reason().unwrap_or("Error"),
    };
    let body = html! {
        h1 { (title) }
        p.alert role="alert" { (delayline_json::harmless_line(&failure.detail_for(rights))) "." }
        @if !failure.advice().is_empty() { p { (failure.advice()) } }
        p { a href={ (root) "queues" } { "All queues" } }
    };
    (status, layout::bare(title, &body, root)).into_response()
}
