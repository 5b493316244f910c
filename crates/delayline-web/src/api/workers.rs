//! The processes with workers.

use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};

use super::problem::answer;
use crate::Role;
use crate::context::Context;
use crate::failure::told;
use crate::staff::Staff;

/// The processes with workers, and what they hold now.
pub(super) async fn list(context: Context) -> Response {
    let staff = Staff::of(&context, false).await;
    let rights = context.visitor.rights;
    let places = context.may(Role::Operator);
    let processes: Vec<Value> = staff.holders.iter().map(|holder| holder.json(places)).collect();
    let unread = staff.unread.iter();
    let unread: Vec<Value> = unread
        .map(|(queue, why)| json!({ "queue": queue, "failure": why.detail_for(rights) }))
        .collect();
    let value = json!({
        "processes": processes,
        "complete": staff.complete,
        "failure": staff.unlisted.as_ref().map(|why| told(why, rights)),
        "unread": unread,
        "cut": staff.cut,
    });
    answer(StatusCode::OK, &value)
}
