//! `delayline serve --sqs`.

use std::net::SocketAddr;

use axum::Router;
use axum::routing::get_service;
use delayline::{Connection, Error};
use delayline_sqs::{Access, Sqs};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::args::Serve;

/// Creates the router of the SQS endpoint, if one is asked for, and the address to serve it at.
pub(super) async fn router(
    args: &Serve,
    connection: &Connection,
    access: Access,
    names: &[String],
    stop: &CancellationToken,
    tracker: &TaskTracker,
) -> Result<Option<(SocketAddr, Router)>, Error> {
    let Some(address) = args.sqs else { return Ok(None) };
    let mut sqs = Sqs::new(connection.clone(), access).strict(args.sqs_strict);
    sqs = sqs.durability(args.sqs_durability).stop_on(stop.clone()).track_on(tracker.clone());
    if !args.all && !names.is_empty() {
        sqs = sqs.only_queues(names);
    }
    if let Some(url) = &args.sqs_url {
        sqs = sqs.public_url(url);
    }
    Ok(Some((address, sqs.router().await?)))
}

/// Adds the health checks of the dashboard, for platforms that check this port.
pub(super) fn with_health(sqs: &Router, dashboard: &Router) -> Router {
    let checks = get_service(dashboard.clone()).fallback_service(sqs.clone());
    let router = Router::new().route("/health", checks.clone()).route("/ready", checks);
    router.fallback_service(sqs.clone())
}
