//! Requests and answers: the JSON protocol and the Query protocol.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderName, HeaderValue};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use delayline_web::ClientAddress;
use delayline_web::waiting::Hold;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::actions;
use crate::call::{Answer, Call};
use crate::error::{Code, Error};
use crate::shared::Shared;
use crate::{names, query, xml};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Json,
    Query,
}

impl Protocol {
    fn of(headers: &HeaderMap) -> Self {
        if headers.contains_key(TARGET) { Self::Json } else { Self::Query }
    }
}

/// Answers a request.
pub(crate) async fn answer(shared: Arc<Shared>, request: Request) -> Response {
    let protocol = Protocol::of(request.headers());
    let request_id = Uuid::new_v4().to_string();
    let (parts, body) = request.into_parts();
    let (action, result) = match attempt(shared, &parts, body, protocol).await {
        Ok((action, result)) => (action, result),
        Err(error) => (String::new(), Err(error)),
    };
    let mut response = match (protocol, result) {
        (Protocol::Json, Ok(answer)) => written(JSON, answer.value.to_string(), answer.hold),
        (Protocol::Query, Ok(answer)) => {
            written(XML, xml::answer(&action, &answer.value, &request_id), answer.hold)
        }
        (Protocol::Json, Err(error)) => {
            let text = json!({"__type": error.json_type(), "message": error.message()});
            let mut response = written(JSON, text.to_string(), None);
            *response.status_mut() = error.status();
            let of = if error.is_of_sender() { "Sender" } else { "Receiver" };
            if let Ok(value) = HeaderValue::try_from(format!("{};{of}", error.query_code())) {
                response.headers_mut().insert(QUERY_ERROR, value);
            }
            response
        }
        (Protocol::Query, Err(error)) if error.code() == Code::MissingAction => {
            let mut response = written(XML, "<UnknownOperationException/>".to_owned(), None);
            *response.status_mut() = StatusCode::NOT_FOUND;
            response
        }
        (Protocol::Query, Err(error)) => {
            let mut response = written(XML, xml::error(&error, &request_id), None);
            *response.status_mut() = error.status();
            response
        }
    };
    if let Ok(value) = HeaderValue::try_from(request_id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    response
}

/// Reads a request, and executes its action.
async fn attempt(
    shared: Arc<Shared>,
    parts: &Parts,
    body: Body,
    protocol: Protocol,
) -> Result<(String, Result<Answer, Error>), Error> {
    // A page of another site can make a browser send this, too.
    let site = parts.headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    let is_own = site.is_none_or(|site| matches!(site, b"none" | b"same-origin"));
    if !(is_own && matches!(parts.method, Method::GET | Method::POST)) {
        let why = "Requests are sent with POST, and not by pages of other sites.";
        return Err(Error::new(Code::AccessDenied, why));
    }
    let (body, share) = shared.bodies.read(body).await?;
    let caller = shared.access.caller(parts, &body).await.inspect_err(|error| {
        let address = parts.extensions.get::<ClientAddress>().map(|it| it.0.to_string());
        let outcome = error.query_code();
        if error.code() == Code::RequestThrottled {
            // Their lines would be as many as the tries.
            tracing::debug!(
                target: "delayline_sqs::audit", action = "login", address, outcome, "refused"
            );
            return;
        }
        tracing::warn!(
            target: "delayline_sqs::audit", action = "login", address, outcome, "refused"
        );
    })?;
    let (action, mut input) = match protocol {
        Protocol::Json => {
            let target = parts.headers.get(TARGET).and_then(|it| it.to_str().ok());
            let action = target.and_then(|target| target.strip_prefix("AmazonSQS."));
            let input = if body.is_empty() { Ok(json!({})) } else { serde_json::from_slice(&body) };
            let input = input
                .map_err(|_| Error::new(Code::Serialization, "The body is not a JSON object."))?;
            (action.map(str::to_owned), input)
        }
        Protocol::Query => {
            let of_url = parts.uri.query().unwrap_or_default().as_bytes();
            let of_body = if parts.method == Method::POST { &body[..] } else { &[] };
            query::read(&[of_url, of_body])?
        }
    };
    drop((body, share));
    let action = action
        .ok_or_else(|| Error::new(Code::MissingAction, "The request names no action of SQS."))?;
    // A link can make other programs send a GET, but not with a header of SDKs.
    let may_be_a_link = parts.method == Method::GET && !parts.headers.contains_key(DATE);
    if may_be_a_link && !caller.is_named && !actions::only_reads(&action) {
        let why = "Without a signature, actions that change something are sent with POST.";
        return Err(Error::new(Code::AccessDenied, why));
    }
    let base = match &shared.public_url {
        Some(url) => url.clone(),
        None => {
            let host = parts.headers.get(HOST).and_then(|host| host.to_str().ok());
            format!("http://{}", host.unwrap_or("localhost"))
        }
    };
    let path = names::below(&base, parts.uri.path());
    if NOT_OF_A_QUEUE.contains(&&*action) && names::of_url(path).is_ok() {
        return Err(Error::unknown_action(&action));
    }
    let Value::Object(members) = &mut input else {
        return Err(Error::new(Code::Serialization, "The parameters are not an object."));
    };
    // Clients of the Query protocol send requests to the URL of the queue.
    if protocol == Protocol::Query && path != "/" && !members.contains_key("QueueUrl") {
        members.insert("QueueUrl".to_owned(), path.into());
    }
    if let Some(Value::String(url)) = members.get_mut("QueueUrl") {
        *url = names::below(&base, url).to_owned();
    }
    let trace = parts.headers.get(TRACE).and_then(|it| it.to_str().ok());
    let trace = trace.filter(|it| (1..=MOST_TRACE_BYTES).contains(&it.len())).map(str::to_owned);
    let call = Call { shared, caller, base, trace };
    let result = actions::execute(&call, &action, input).await;
    Ok((action, result))
}

/// An answer with a body. The leases count as delivered once the connection takes it.
fn written(media_type: &'static str, text: String, hold: Option<Hold>) -> Response {
    let body = Bytes::from(text);
    let length = HeaderValue::from(body.len());
    let body = Full::new(body).map_frame(move |frame| {
        if let Some(hold) = &hold {
            hold.delivered();
        }
        frame
    });
    let headers = [(CONTENT_TYPE, HeaderValue::from_static(media_type)), (CONTENT_LENGTH, length)];
    (StatusCode::OK, headers, Body::new(body)).into_response()
}

const TARGET: HeaderName = HeaderName::from_static("x-amz-target");
/// SDKs send it with each signature that is not in the URL.
const DATE: HeaderName = HeaderName::from_static("x-amz-date");
const TRACE: HeaderName = HeaderName::from_static("x-amzn-trace-id");
const QUERY_ERROR: HeaderName = HeaderName::from_static("x-amzn-query-error");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-amzn-requestid");
const JSON: &str = "application/x-amz-json-1.0";
const XML: &str = "text/xml";
/// Actions that are not requested at the URL of a queue.
const NOT_OF_A_QUEUE: [&str; 2] = ["CreateQueue", "ListQueues"];
const MOST_TRACE_BYTES: usize = 512;
