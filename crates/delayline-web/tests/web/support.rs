//! Queues in memory, requests, and answers.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, StatusCode};
use delayline::codec::Raw;
use delayline::{Bytes, Connection, Job, Outcome, Queue, Worker};
use delayline_web::{Access, Dashboard, Rights, Router};
use serde_json::Value;
use tower::ServiceExt as _;

pub type Raws = Queue<Bytes, Raw>;

/// A queue `orders` in memory.
pub async fn orders() -> Raws {
    let connection = delayline::connect("memory:").await.unwrap();
    open(&connection, "orders").await
}

pub async fn open(connection: &Connection, name: &str) -> Raws {
    connection.queue(name).await.unwrap().codec(Raw)
}

/// A dashboard of one queue for visitors with these rights.
pub fn site(queue: &Raws, rights: impl Into<Rights>) -> Router {
    Dashboard::new(Access::everyone(rights)).queue(queue.clone()).router().unwrap()
}

pub async fn send(queue: &Raws, id: &str, payload: impl Into<Bytes>) {
    assert!(queue.message(&payload.into()).id(id).send().await.unwrap().is_accepted());
}

pub async fn send_later(queue: &Raws, id: &str, seconds: u64) {
    let draft = queue.message(&Bytes::from_static(b"later")).id(id);
    let sent = draft.due_in(Duration::from_secs(seconds)).send().await.unwrap();
    assert!(sent.is_accepted());
}

/// Lets a worker reject every ready message.
pub async fn reject_all(
    queue: &Raws,
    reason: impl Fn(&Job<Bytes>) -> String + Send + Sync + 'static,
) {
    let worker = Worker::builder(queue.clone()).until_empty(true).build().unwrap();
    worker
        .run(move |job: Job<Bytes>| {
            let reason = reason(&job);
            async move { Ok::<_, std::io::Error>(Outcome::reject(reason)) }
        })
        .await;
}

/// Sends messages that a worker rejects for this reason at once.
pub async fn let_die(queue: &Raws, ids: &[impl AsRef<str>], reason: &str) {
    let before = queue.stats().await.unwrap().dead;
    for id in ids {
        send(queue, id.as_ref(), "payload").await;
    }
    let reason = reason.to_owned();
    reject_all(queue, move |_| reason.clone()).await;
    assert_eq!(queue.stats().await.unwrap().dead, before + ids.len() as u64);
}

/// The page of a job, once the job has ended.
pub async fn finished(site: &Router, page: &str) -> Answer {
    let finished = async {
        loop {
            let page = get(site, page).await.status(200);
            if !page.text().contains(": running.") {
                break page;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), finished).await.expect("the job ends")
}

/// The job or search at a path of the API, once it has ended.
pub async fn ended(site: &Router, path: &str) -> Value {
    let ended = async {
        loop {
            let told = call(site, "GET", path, "").await.status(200).json();
            if told["state"] != "running" {
                break told;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(600), ended).await.expect("it ends")
}

/// The answer.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("{}", self.text()))
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    #[track_caller]
    pub fn status(self, status: u16) -> Self {
        assert_eq!(self.status.as_u16(), status, "{}", String::from_utf8_lossy(&self.body));
        self
    }

    /// Checks that the page contains a text.
    #[track_caller]
    pub fn has(self, text: &str) -> Self {
        assert!(self.text().contains(text), "{text} is not in {}", self.text());
        self
    }

    /// Checks that the page does not contain a text.
    #[track_caller]
    pub fn lacks(self, text: &str) -> Self {
        assert!(!self.text().contains(text), "{text} is in {}", self.text());
        self
    }

    /// Where a form leads to, if it is done.
    #[track_caller]
    pub fn leads_to(self) -> String {
        let answer = self.status(303);
        format!("/{}", answer.header("location"))
    }
}

pub async fn exchange(site: &Router, request: Request<Body>) -> Answer {
    let response = site.clone().oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap().to_vec();
    Answer { status: parts.status, headers: parts.headers, body }
}

/// Sends a request with these headers.
pub async fn ask(
    site: &Router,
    method: &str,
    uri: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Answer {
    let request = Request::builder().method(method).uri(uri);
    let request = headers.iter().fold(request, |it, (name, value)| it.header(*name, *value));
    exchange(site, request.body(Body::from(body.to_owned())).unwrap()).await
}

pub async fn get(site: &Router, uri: &str) -> Answer {
    ask(site, "GET", uri, &[], "").await
}

/// Sends a form as a browser does.
pub async fn post(site: &Router, uri: &str, fields: &str) -> Answer {
    let headers = [
        ("host", "queues.example"),
        ("sec-fetch-site", "same-origin"),
        ("origin", "http://queues.example"),
        ("content-type", "application/x-www-form-urlencoded"),
    ];
    ask(site, "POST", uri, &headers, fields).await
}

pub const JSON: (&str, &str) = ("content-type", "application/json");

/// Asks the API.
pub async fn call(site: &Router, method: &str, path: &str, body: &str) -> Answer {
    ask(site, method, &format!("/api/v1{path}"), &[JSON], body).await
}
