//! The processes with workers.

use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};

use super::problem::answer;
use crate::Role;
use crate::context::Context;
use crate::failure::told;
use crate::worker_report::WorkerReport;

/// The processes with workers, and the messages that they hold now.
pub(super) async fn list(context: Context) -> Response {
    let report = WorkerReport::of(&context, false).await;
    let rights = context.visitor.rights;
    let places = context.may(Role::Operator);
    let processes: Vec<Value> = report.holders.iter().map(|holder| holder.json(places)).collect();
    let unread = report.unread.iter();
    let unread: Vec<Value> = unread
        .map(|(queue, why)| json!({ "queue": queue, "failure": why.detail_for(rights) }))
        .collect();
    let value = json!({
        "processes": processes,
        "complete": report.complete,
        "failure": report.unlisted.as_ref().map(|why| told(why, rights)),
        "unread": unread,
        "cut": report.cut,
    });
    answer(StatusCode::OK, &value)
}
