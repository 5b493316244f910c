//! The checks that every request passes before its handler, and the headers of every response.

use std::sync::Arc;

use axum::Router;
use axum::extract::{OriginalUri, Request, State};
use axum::http::HeaderValue;
use axum::http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, REFERRER_POLICY, WWW_AUTHENTICATE,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::request::Parts;
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use tower_http::csrf::{CsrfLayer, ProtectionError};

use crate::access::Admission;
use crate::api::problem;
use crate::failure::{Failure, Unsaid};
use crate::pages::failed;
use crate::shared::Shared;
use crate::when::in_zone_of;
use crate::{ClientAddress, Rights};

/// Admits visitors, and adds them to the request as an extension.
pub(crate) fn admit(router: Router<Arc<Shared>>, shared: &Arc<Shared>) -> Router<Arc<Shared>> {
    router.layer(from_fn_with_state(Arc::clone(shared), only_visitors))
}

/// Refuses forged requests, and sets the headers that restrict browsers.
pub(crate) fn protect(router: Router<Arc<Shared>>) -> Router<Arc<Shared>> {
    let forged = |_: ProtectionError| Failure::Forged.into_response();
    router.layer(CsrfLayer::new().with_rejection_response(forged)).layer(from_fn(strict))
}

async fn only_visitors(
    State(shared): State<Arc<Shared>>,
    request: Request,
    next: Next,
) -> Response {
    let (mut parts, body) = request.into_parts();
    let place = Place::of(&parts);
    let visitor = match shared.access.visitor(&parts, &shared.brake).await {
        Admission::Visitor(visitor) => visitor,
        refused => return unknown(&shared, &parts, &refused),
    };
    let rights = visitor.rights;
    let asked = Asked::of(&parts);
    let name = delayline_json::harmless_line(&visitor.name);
    parts.extensions.insert(visitor);
    let headers = parts.headers.clone();
    let answer = next.run(Request::from_parts(parts, body));
    let mut response = in_zone_of(&headers, answer).await;
    let Some(Unsaid(failure)) = response.extensions_mut().remove() else { return response };
    if matches!(*failure, Failure::Forbidden { .. }) {
        asked.refused(&name, &failure.detail());
    }
    let mut said = in_zone_of(&headers, async { refusal(&failure, &place, rights) }).await;
    if let Some(methods) = response.headers_mut().remove(ALLOW) {
        said.headers_mut().insert(ALLOW, methods);
    }
    said
}

/// The answer to a request that has no visitor.
fn unknown(shared: &Shared, parts: &Parts, admission: &Admission) -> Response {
    let place = Place::of(parts);
    let address = parts.extensions.get::<ClientAddress>().map(|it| it.0.to_string());
    match admission {
        Admission::Wrong { user } => {
            let visitor = delayline_json::harmless_line(user.as_deref().unwrap_or("unknown"));
            tracing::warn!(
                target: "delayline_web::audit",
                %visitor,
                action = "login",
                address,
                outcome = "the user, password or token is wrong",
                "refused"
            );
        }
        Admission::TooMany => {
            // Their lines would be as many as the tries.
            tracing::debug!(
                target: "delayline_web::audit", action = "login", address, outcome = "slowed",
                "refused"
            );
            return refusal(&Failure::Slowed, &place, Rights::NONE);
        }
        _ => {}
    }
    let asks = shared.access.asks();
    let mut response = refusal(&Failure::Unauthenticated { asks }, &place, Rights::NONE);
    if asks {
        let basic = HeaderValue::from_static(r#"Basic realm="delayline", charset="UTF-8""#);
        let headers = response.headers_mut();
        headers.append(WWW_AUTHENTICATE, basic);
        headers.append(WWW_AUTHENTICATE, HeaderValue::from_static(r#"Bearer realm="delayline""#));
    }
    response
}

/// A request, as the log has it.
struct Asked(String);

impl Asked {
    fn of(parts: &Parts) -> Self {
        let uri = parts.uri.path_and_query().map_or("", |it| it.as_str());
        let uri: String = uri.chars().take(MOST_LOGGED).collect();
        Self(format!("{} {uri}", parts.method))
    }

    fn refused(self, visitor: &str, outcome: &str) {
        let Self(request) = self;
        tracing::warn!(
            target: "delayline_web::audit",
            %visitor,
            action = "refused",
            request,
            outcome,
            "refused"
        );
    }
}

async fn strict(request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let place = Place::of(&parts);
    let asked = Asked::of(&parts);
    let mut response = next.run(Request::from_parts(parts, body)).await;
    // It was refused before a visitor was admitted, or needs none.
    if let Some(Unsaid(failure)) = response.extensions_mut().remove() {
        if matches!(*failure, Failure::Forged) {
            asked.refused("unknown", &failure.detail());
        }
        response = refusal(&failure, &place, Rights::NONE);
    }
    let headers = response.headers_mut();
    for (name, value) in STRICT {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Where a request goes, which says how a refusal is written.
enum Place {
    Api,
    /// How a relative address leads from here to the pages.
    Page {
        root: String,
    },
}

impl Place {
    fn of(parts: &Parts) -> Self {
        let path = parts.uri.path();
        if path.starts_with("/api/") {
            return Self::Api;
        }
        let original = parts.extensions.get::<OriginalUri>().map_or(path, |it| it.0.path());
        let root = match original.rsplit('/').next().unwrap_or_default() {
            // The mount point of the router, without a slash at the end.
            last if path == "/" && !last.is_empty() => format!("{last}/"),
            _ => "../".repeat(path.matches('/').count().saturating_sub(1).min(MOST_LEVELS)),
        };
        Self::Page { root }
    }
}

fn refusal(failure: &Failure, place: &Place, rights: Rights) -> Response {
    match place {
        Place::Api => problem::of(failure, rights),
        Place::Page { root } => failed::page(failure, rights, root),
    }
}

/// Levels of a path from which a page leads to the others.
const MOST_LEVELS: usize = 64;

/// Characters of a path and a query in a line of the log.
const MOST_LOGGED: usize = 300;

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
