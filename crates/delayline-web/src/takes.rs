//! What a request may carry besides its path. Pages, metrics and API refuse everything that they
//! would ignore.

use axum::body::{Body, HttpBody as _};
use axum::extract::Request;
use axum::http::Method;
use axum::http::header::CONTENT_ENCODING;
use axum::middleware::{Next, from_fn};
use axum::response::IntoResponse as _;
use axum::routing::MethodRouter;

use crate::body::absent;
use crate::failure::Failure;
use crate::params::Params;

/// What a request may carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Takes {
    /// The parameters of the URL, as for [`Params::only`].
    pub(crate) names: &'static [&'static str],
    /// More of them.
    pub(crate) more: &'static [&'static str],
    /// Whether its handler reads a body.
    pub(crate) body: bool,
}

/// Refuses requests that carry more than `takes` returns for their method.
pub(crate) fn only<S: Clone + Send + Sync + 'static>(
    methods: MethodRouter<S>,
    takes: impl Fn(&Method) -> Takes + Clone + Send + Sync + 'static,
) -> MethodRouter<S> {
    methods.route_layer(from_fn(move |request: Request, next: Next| {
        let is_head = request.method() == Method::HEAD;
        let takes = takes(if is_head { &Method::GET } else { request.method() });
        async move {
            match checked(request, takes).await {
                Ok(request) => next.run(request).await,
                Err(failure) => failure.into_response(),
            }
        }
    }))
}

async fn checked(request: Request, takes: Takes) -> Result<Request, Failure> {
    let params = Params::read(request.uri().query().unwrap_or_default().as_bytes());
    params.only("the URL", "parameter", takes.names.iter().chain(takes.more).copied())?;
    let mut encodings = request.headers().get_all(CONTENT_ENCODING).iter();
    if encodings.any(|it| !it.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return Err(Failure::Encoded);
    }
    if takes.body || request.body().is_end_stream() {
        return Ok(request);
    }
    let (parts, body) = request.into_parts();
    absent(body).await?;
    Ok(Request::from_parts(parts, Body::empty()))
}
