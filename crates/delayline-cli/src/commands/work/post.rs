//! Posts a message to a URL.

mod signature;

use std::num::IntErrorKind;
use std::time::Duration;

use delayline::telemetry::TraceContext;
use delayline::worker::CancelReason;
use delayline::{Bytes, Outcome};
use delayline_json::headers as headers_json;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, RETRY_AFTER, USER_AGENT};
use hyper::{HeaderMap, Request, Response, StatusCode, Uri};
use tokio::time::{sleep, timeout};

pub(super) use self::signature::Secret;
use super::delivery::{Delivery, MOST_RESULT_BYTES, ack_with, wants_result};
use crate::failure::Failure;
use crate::http::{self, Client};

/// Where messages go, and what the answers mean.
pub(super) struct Post {
    pub(super) queue: String,
    url: Uri,
    client: Client,
    secret: Option<Secret>,
    timeout: Duration,
    rules: Rules,
}

/// What becomes of a message by the answer.
#[derive(Clone, Copy)]
pub(super) struct Rules {
    /// Whether an answer of 4xx is tried again.
    pub(super) retry_4xx: bool,
    /// How many claims may end without a failure before an answer that asks for another one counts
    /// as a failure.
    pub(super) max_snoozes: u64,
}

impl Post {
    /// Checks the URL and prepares connections.
    pub(super) fn new(
        queue: &str,
        url: &str,
        secret: Option<Secret>,
        timeout: Duration,
        rules: Rules,
    ) -> Result<Self, Failure> {
        let uri = http::url("--post", url).map_err(Failure::usage)?;
        let client = http::client(&uri)?;
        Ok(Self { queue: queue.to_owned(), url: uri, client, secret, timeout, rules })
    }

    /// Posts a message. Returns its outcome.
    pub(super) async fn run(&self, job: &Delivery) -> Result<Outcome, String> {
        let request = self.request(job).map_err(|error| format!("no request: {error}"))?;
        let response = tokio::select! {
            response = self.client.request(request) => {
                response.map_err(|error| http::told(&error))?
            }
            () = sleep(self.timeout) => {
                return Err(format!("no answer within {:?}", self.timeout));
            }
            () = job.cancellation().cancelled() => return match job.cancel_reason() {
                // It is not the message's fault.
                None | Some(CancelReason::Stopping) => Ok(Outcome::Release),
                Some(reason) => Err(format!("given up, because {reason}")),
            },
        };
        let (status, later) = (response.status(), retry_after(response.headers()));
        if status.is_success() && wants_result(job) {
            // The status has said that it is handled: an end of this process must not have it sent
            // again.
            let result = tokio::select! {
                result = result(response, self.timeout) => result,
                () = job.cancellation().cancelled() => None,
            };
            return Ok(match result {
                Some(result) => ack_with(job, result),
                None => {
                    tracing::warn!(id = %job.id(), "the answer broke off; its body is not kept");
                    Outcome::Ack
                }
            });
        }
        let said = beginning(response).await;
        let what = match said.trim() {
            "" => format!("HTTP status {}", status.as_u16()),
            said => format!("HTTP status {}: {said}", status.as_u16()),
        };
        // Earlier claims that neither failed nor crashed: the message was snoozed, or released by a
        // worker that stopped. A redrive resets failures, so these count as well.
        let tries = u64::from(job.failures()) + u64::from(job.crashes());
        let unfailed = job.epoch().saturating_sub(1).saturating_sub(tries);
        outcome(status, later, unfailed, self.rules, what)
    }

    fn request(&self, job: &Delivery) -> Result<Request<Full<Bytes>>, hyper::http::Error> {
        let id = signature::id(job.id().as_bytes());
        // Names of HTTP headers have no case, and those of messages do.
        let header = |name: &str| {
            let (_, value) = job.headers().iter().find(|(it, _)| it.eq_ignore_ascii_case(name))?;
            HeaderValue::from_bytes(value).ok()
        };
        let octets = HeaderValue::from_static("application/octet-stream");
        let mut request = Request::post(self.url.clone())
            .header(USER_AGENT, concat!("delayline/", env!("CARGO_PKG_VERSION")))
            .header(CONTENT_TYPE, header("content-type").unwrap_or(octets))
            // hyper leaves it out for an empty body, and strict servers then answer 411.
            .header(CONTENT_LENGTH, job.payload().len())
            .header("delayline-queue", &self.queue)
            .header("delayline-due", job.due().to_string())
            .header("delayline-lateness-ms", job.lateness().as_millis().to_string())
            .header("delayline-epoch", job.epoch())
            .header("delayline-attempt", job.attempt())
            .header("delayline-failures", job.failures())
            .header("delayline-crashes", job.crashes());
        if let Some(group) = job.group() {
            request = request.header("delayline-group", signature::id(group.as_str().as_bytes()));
        }
        if !job.headers().is_empty() {
            let json = ascii(&headers_json(job.headers()).to_string());
            request = if json.len() > MOST_HEADERS_BYTES {
                request.header("delayline-headers-omitted", json.len())
            } else {
                request.header("delayline-headers", json)
            };
        }
        for name in [TraceContext::TRACEPARENT, TraceContext::TRACESTATE] {
            if let Some(value) = header(name) {
                request = request.header(name, value);
            }
        }
        let seconds = signature::now();
        if let Some(secret) = &self.secret {
            request = request.header("webhook-signature", secret.sign(&id, seconds, job.payload()));
        }
        request
            .header("webhook-id", id)
            .header("webhook-timestamp", seconds)
            .body(Full::new(job.payload().clone()))
    }
}

/// What an answer means for its message; `what` is it in words.
fn outcome(
    status: StatusCode,
    later: Option<Duration>,
    unfailed: u64,
    rules: Rules,
    what: String,
) -> Result<Outcome, String> {
    let busy = [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE].contains(&status);
    // These say "not now" and not "never".
    let not_now = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_EARLY].contains(&status) || busy;
    match later {
        _ if status.is_success() => Ok(Outcome::Ack),
        // The receiver asks for a pause, whatever the message.
        Some(later) if busy && unfailed < rules.max_snoozes => {
            Ok(Outcome::Snooze(later).hold_queue(later))
        }
        Some(_) if busy => Err(format!("{what} (claimed {unfailed} times without a failure)")),
        _ if status.is_client_error() && !not_now && !rules.retry_4xx => Ok(Outcome::Reject(what)),
        _ if status.is_redirection() => Err(format!("{what} (redirects are not followed)")),
        _ => Err(what),
    }
}

/// `Retry-After`, in seconds or as a date, within bounds.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => LONGEST_WAIT,
        Err(_) => {
            let instant = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
            instant.duration_since(jiff::Timestamp::now()).try_into().unwrap_or_default()
        }
    };
    Some(wait.clamp(SHORTEST_WAIT, LONGEST_WAIT))
}

/// The body of an answer, or more of it than a result may have; `None` if it breaks off, or is not
/// there in time. The message is handled all the same.
async fn result(response: Response<Incoming>, limit: Duration) -> Option<Vec<u8>> {
    let mut body = response.into_body();
    let mut result = Vec::new();
    let reading = async {
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.ok()?.into_data() else { continue };
            let room = MOST_RESULT_BYTES.saturating_sub(result.len());
            result.extend_from_slice(data.get(..room).unwrap_or(&data));
            if result.len() == MOST_RESULT_BYTES {
                break;
            }
        }
        Some(())
    };
    timeout(limit, reading).await.ok()??;
    Some(result)
}

/// The beginning of an answer's body as text. The rest is read, up to limits, so that the
/// connection can be used again. The status decides alone, however slow or long the body is.
async fn beginning(response: Response<Incoming>) -> String {
    let (mut body, mut kept, mut read) = (response.into_body(), Vec::new(), 0);
    let reading = async {
        while let Some(Ok(frame)) = body.frame().await {
            let Ok(data) = frame.into_data() else { continue };
            let room = KEPT_BYTES.saturating_sub(kept.len());
            kept.extend_from_slice(data.get(..room.min(data.len())).unwrap_or_default());
            read += data.len();
            if read > MOST_BYTES {
                break;
            }
        }
    };
    // The bytes that have arrived by then are kept.
    let _ = timeout(BODY, reading).await;
    String::from_utf8_lossy(&kept).into_owned()
}

/// JSON in ASCII, as headers have it.
fn ascii(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for character in json.chars() {
        if character.is_ascii() && !character.is_ascii_control() {
            out.push(character);
        } else {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    out
}

/// Many servers refuse a longer line than 8 KiB, and the message would become a dead letter.
const MOST_HEADERS_BYTES: usize = 7 * 1024;
const SHORTEST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 60 * 60);
/// Less than is kept of an error, with room for the status and for replaced bytes.
const KEPT_BYTES: usize = 800;
const MOST_BYTES: usize = 256 * 1024;
/// How long the body of an answer may take after its head.
const BODY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_its_outcome() {
        let rules = |retry_4xx| Rules { retry_4xx, max_snoozes: 3 };
        let of = |status: u16, later: Option<u64>, unfailed, retry_4xx| {
            let status = StatusCode::from_u16(status).unwrap();
            let later = later.map(Duration::from_secs);
            outcome(status, later, unfailed, rules(retry_4xx), "it".to_owned())
        };
        let failed = |words: &str| Err(words.to_owned());
        let later = Duration::from_secs(7);
        let snoozed = Ok(Outcome::Snooze(later).hold_queue(later));
        for status in [200, 201, 204, 299] {
            assert_eq!(of(status, None, 9, false), Ok(Outcome::Ack));
        }
        for status in [429, 503] {
            assert_eq!(of(status, Some(7), 2, false), snoozed);
            assert_eq!(
                of(status, Some(7), 3, false),
                failed("it (claimed 3 times without a failure)")
            );
            assert_eq!(of(status, None, 0, false), failed("it"));
        }
        for status in [400, 401, 404, 410, 422] {
            assert_eq!(of(status, Some(7), 0, false), Ok(Outcome::Reject("it".to_owned())));
            assert_eq!(of(status, None, 0, true), failed("it"));
        }
        for status in [408, 425, 500, 502, 504] {
            assert_eq!(of(status, Some(7), 0, false), failed("it"));
        }
        assert_eq!(of(302, None, 0, false), failed("it (redirects are not followed)"));
    }

    #[test]
    fn a_retry_after_is_a_number_or_a_date() {
        let day = Some(86_400);
        for (text, expected) in [
            ("0", Some(1)),
            ("30", Some(30)),
            ("86401", day),
            ("99999999999999999999", day),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(1)),
            ("Thu, 31 Dec 9998 23:59:59 GMT", day),
            ("soon", None),
            ("-1", None),
        ] {
            let headers = [(RETRY_AFTER, HeaderValue::from_static(text))].into_iter().collect();
            assert_eq!(retry_after(&headers).map(|wait| wait.as_secs()), expected, "{text}");
        }
    }

    #[test]
    fn headers_are_ascii() {
        let json = "{\"a\":\"\u{e9}\u{1f600}\u{7f}\\n\"}";
        assert_eq!(ascii(json), "{\"a\":\"\\u00e9\\ud83d\\ude00\\u007f\\n\"}");
    }
}
