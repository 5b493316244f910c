//! What every request passes before its handler, and every answer after it.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, REFERRER_POLICY, WWW_AUTHENTICATE,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderValue, Uri};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use tower_http::csrf::{CsrfLayer, ProtectionError};

use crate::api::problem::Problem;
use crate::dashboard::Shared;
use crate::failure::Failure;

/// Lets visitors in, who are known by an extension from then on.
pub(crate) fn admit(router: Router<Arc<Shared>>, shared: &Arc<Shared>) -> Router<Arc<Shared>> {
    router.layer(from_fn_with_state(Arc::clone(shared), only_visitors))
}

/// Refuses forged requests, and tells browsers what they may do with an answer.
pub(crate) fn protect(router: Router<Arc<Shared>>) -> Router<Arc<Shared>> {
    // What answers is not told the path; `strict` is.
    let forged = |_: ProtectionError| -> Response<Body> {
        let mut response = Response::default();
        response.extensions_mut().insert(Forged);
        response
    };
    router.layer(CsrfLayer::new().with_rejection_response(forged)).layer(from_fn(strict))
}

async fn only_visitors(
    State(shared): State<Arc<Shared>>,
    request: Request,
    next: Next,
) -> Response {
    let (mut parts, body) = request.into_parts();
    if let Some(visitor) = shared.access.visitor(&parts) {
        parts.extensions.insert(visitor);
        return next.run(Request::from_parts(parts, body)).await;
    }
    let asks = shared.access.asks();
    let mut response = refusal(Failure::Nobody { asks }, is_api(&parts.uri));
    if asks {
        let basic = HeaderValue::from_static(r#"Basic realm="delayline", charset="UTF-8""#);
        let headers = response.headers_mut();
        headers.append(WWW_AUTHENTICATE, basic);
        headers.append(WWW_AUTHENTICATE, HeaderValue::from_static(r#"Bearer realm="delayline""#));
    }
    response
}

async fn strict(request: Request, next: Next) -> Response {
    let api = is_api(request.uri());
    let mut response = next.run(request).await;
    if response.extensions().get::<Forged>().is_some() {
        response = refusal(Failure::Forged, api);
    }
    let headers = response.headers_mut();
    for (name, value) in STRICT {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Marks the answer to a forged request.
#[derive(Clone, Copy)]
struct Forged;

fn is_api(uri: &Uri) -> bool {
    uri.path().starts_with("/api/")
}

fn refusal(failure: Failure, api: bool) -> Response {
    if api { Problem(failure).into_response() } else { failure.into_response() }
}

/// With the policy `no-referrer`, browsers would send the origin `null` with a form.
const STRICT: [(HeaderName, &str); 4] = [
    (
        CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src \
         'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    ),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
    (REFERRER_POLICY, "same-origin"),
];
