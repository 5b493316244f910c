//! Notifies open pages when a queue has changed.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::context::Context;
use crate::failure::Failure;
use crate::latest::stamp;
use crate::served::ROW_AGE;
use crate::survey::Survey;

/// Server-sent events for the queue of the query, or for all, or for the `rows` of the first page.
/// An event `changed` is sent whenever the counts differ from the stamp `since` or from the event
/// before. With `job` it is also sent when the progress of the queue's last job changes. Another
/// one follows some time after the last change, because pages show relative times. The page then
/// asks for itself again.
///
/// All open pages share the counts, which are taken once a second, or every five seconds for rows,
/// and only while a page is open.
pub(crate) async fn events(context: Context) -> Result<Response, Failure> {
    let only = match context.params.text("queue") {
        Some(name) => Some(context.named(name)?.0.to_owned()),
        None => None,
    };
    let of_job = context.params.text("job").is_some();
    let since = context.params.text("since").unwrap_or_default().to_owned();
    let of_rows = context.params.text("rows").is_some();
    let mut ticks = interval(if of_rows { ROW_AGE } else { PERIOD });
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let start = Instant::now();
    let state = (context, only, since, ticks, start);
    let events =
        stream::unfold(state, move |(context, only, mut since, mut ticks, mut last)| async move {
            loop {
                // A server that stops waits for its answers, and this one would not end.
                tokio::select! {
                    () = context.shared.stop.cancelled() => return None,
                    _ = ticks.tick() => {}
                }
                // Then the browser reconnects, and is authenticated again.
                if start.elapsed() > MOST_TIME {
                    return None;
                }
                let now = match of_rows {
                    true => Survey::of(&context).await.stamp(),
                    false => context.stamp(only.as_deref(), of_job).await,
                };
                if now == since && last.elapsed() < MOST_QUIET {
                    continue;
                }
                let event = format!("event: changed\ndata: {now}\n\n");
                (since, last) = (now, Instant::now());
                return Some((
                    Ok::<_, std::convert::Infallible>(Bytes::from(event)),
                    (context, only, since, ticks, last),
                ));
            }
        });
    Ok(([(CONTENT_TYPE, "text/event-stream")], Body::from_stream(events)).into_response())
}

impl Context {
    /// The stamp of the queue, or of all that the visitor knows; or of the last job of the queue.
    async fn stamp(&self, only: Option<&str>, of_job: bool) -> String {
        let known = self.shared.directory.known().await;
        if of_job {
            let job = only.and_then(|name| known.queues.get(name)?.job.job());
            return job.map(|job| job.progress().stamp()).unwrap_or_default();
        }
        let served = known.queues.iter().filter(|(name, _)| match only {
            Some(only) => only == *name,
            None => self.visitor.knows(name),
        });
        let counts = served.map(|(_, served)| async { served.counts().await.map(|it| it.0) });
        stamp(&futures_util::future::join_all(counts).await)
    }
}

/// Pausing shows in another browser within two seconds.
const PERIOD: Duration = Duration::from_secs(1);

/// How long there may be no word: so pages do not grow old, and nothing between here and
/// the browser takes the connection for dead.
const MOST_QUIET: Duration = Duration::from_secs(15);

/// How long one stream of events lasts; then the page opens another.
const MOST_TIME: Duration = Duration::from_secs(5 * 60);
