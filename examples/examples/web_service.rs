//! A web service that schedules work and does it in the same process.
//!
//! `POST /orders/7` places an order, which is closed unless it is paid in time (here 3 s, in
//! production half an hour). `DELETE /orders/7` is the payment. `GET /ready` reports to a load
//! balancer whether the queue can be reached, and the dashboard is at `/admin/q`, with metrics for
//! Prometheus at `/admin/q/metrics`.
//!
//! ```sh
//! cargo run -p delayline-examples --example web_service
//! cargo run -p delayline-examples --example web_service -- redis://127.0.0.1:6379
//! ```

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{Method, Request, StatusCode};
use axum::routing::{get, post};
use delayline::admin::Stats;
use delayline::codec::Raw;
use delayline::worker::Summary;
use delayline::{Bytes, Cancelled, Job, Queue, Worker};
use delayline_web::{Access, Dashboard, Role};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tower::ServiceExt;

#[derive(Serialize, Deserialize)]
struct CloseOrder {
    number: u32,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let connection = delayline::connect(&url).await?;
    let orders: Queue<CloseOrder> = connection.queue("example/web-orders").await?;
    let payloads: Queue<Bytes, Raw> = connection.queue("example/web-orders").await?.codec(Raw);
    // Behind a login of your own; see the guide on the dashboard.
    let dashboard = Dashboard::new(Access::everyone(Role::Viewer)).queue(payloads).router()?;
    let app = service(orders.clone()).nest("/admin/q", dashboard);

    // The sender is dropped when the customers are done, however they end.
    let (busy, done) = oneshot::channel();
    let customers = tokio::spawn(customers(app.clone(), orders.clone(), busy));
    let stop = async {
        tokio::select! {
            () = delayline::shutdown_signal() => {}
            _ = done => {}
        }
    };
    let summary = serve(orders.clone(), app, stop).await?;
    customers.await?;
    assert_eq!((summary.acked, summary.failed), (2, 0), "two orders of three were closed");
    assert!(orders.check().await?.findings.is_empty());
    println!("done");
    Ok(())
}

/// Answers requests and handles due orders, until `stop`.
async fn serve(
    orders: Queue<CloseOrder>,
    app: Router,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<Summary, Box<dyn std::error::Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}/admin/q", listener.local_addr()?);
    let worker = Worker::builder(orders).concurrency(16).build()?;
    let handle = worker.handle();
    let working = tokio::spawn(worker.run(close_order));
    let until = async move {
        stop.await;
        handle.stop(Duration::from_secs(20));
    };
    axum::serve(listener, app).with_graceful_shutdown(until).await?;
    // The worker claims nothing more, and lets running handlers end.
    Ok(working.await?)
}

fn service(orders: Queue<CloseOrder>) -> Router {
    Router::new()
        .route("/orders/{number}", post(place_order).delete(pay_order))
        .route("/ready", get(ready))
        .with_state(orders)
}

/// The order's number is the message's id, so a request that is repeated changes nothing.
async fn place_order(
    State(orders): State<Queue<CloseOrder>>,
    Path(number): Path<u32>,
) -> Result<StatusCode, StatusCode> {
    let message = orders.message(&CloseOrder { number }).id(format!("order-{number}"));
    let sent = message.due_in(Duration::from_secs(3)).send().await.map_err(unavailable)?;
    Ok(if sent.is_accepted() { StatusCode::ACCEPTED } else { StatusCode::CONFLICT })
}

async fn pay_order(
    State(orders): State<Queue<CloseOrder>>,
    Path(number): Path<u32>,
) -> Result<StatusCode, StatusCode> {
    match orders.cancel(format!("order-{number}")).await.map_err(unavailable)? {
        Cancelled::Cancelled => Ok(StatusCode::NO_CONTENT),
        // It is being closed at this moment; a shop would refund the payment.
        Cancelled::InFlight => Err(StatusCode::CONFLICT),
        _ => Err(StatusCode::NOT_FOUND),
    }
}

async fn ready(State(orders): State<Queue<CloseOrder>>) -> Result<StatusCode, StatusCode> {
    orders.stats().await.map_err(unavailable)?;
    Ok(StatusCode::NO_CONTENT)
}

/// The queue has made all safe retries, so the client may try again later.
fn unavailable(error: delayline::Error) -> StatusCode {
    eprintln!("{error}");
    StatusCode::SERVICE_UNAVAILABLE
}

async fn close_order(job: Job<CloseOrder>) -> Result<(), std::io::Error> {
    println!("order {} was not paid: closed", job.payload().number);
    Ok(())
}

/// Stands in for customers, and checks the responses.
async fn customers(app: Router, orders: Queue<CloseOrder>, _busy: oneshot::Sender<()>) {
    let ask = async |method: Method, path: &str| {
        let request = Request::builder().method(method).uri(path).body(Body::empty());
        let Ok(request) = request else { return StatusCode::BAD_REQUEST };
        match app.clone().oneshot(request).await {
            Ok(response) => response.status(),
            Err(never) => match never {},
        }
    };
    assert_eq!(ask(Method::GET, "/ready").await, StatusCode::NO_CONTENT);
    // The numbers of an earlier run are remembered.
    let first = std::process::id() * 10;
    let path = |number: u32| format!("/orders/{}", first + number);
    for number in [1, 2, 3, 3] {
        assert_eq!(ask(Method::POST, &path(number)).await, StatusCode::ACCEPTED);
    }
    assert_eq!(ask(Method::DELETE, &path(2)).await, StatusCode::NO_CONTENT);
    assert_eq!(ask(Method::DELETE, &path(9)).await, StatusCode::NOT_FOUND);
    assert_eq!(ask(Method::GET, "/admin/q/metrics").await, StatusCode::OK);
    let is_open = |stats: Stats| stats.scheduled + stats.ready + stats.leased > 0;
    while orders.stats().await.is_ok_and(is_open) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
