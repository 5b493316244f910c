//! The visitor's time zone, which the browser keeps in a cookie.

use axum::extract::Request;
use axum::http::header::{REFERER, SET_COOKIE};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use delayline_json::Zone;
use maud::html;

use super::buttons::see;
use super::layout::Frame;
use crate::context::{Context, ForViewers, form};
use crate::failure::Failure;
use crate::ids::encoded;
use crate::when::{ZONE_COOKIE, zone};

/// The form that chooses a zone.
pub(super) async fn page(context: Context, headers: HeaderMap) -> Response {
    let referer = headers.get(REFERER).and_then(|it| it.to_str().ok());
    let back = back(referer.unwrap_or_default());
    let content = html! {
        h1 { "Time zone" }
        p { "Pages show and read times in this zone, next to UTC. The browser remembers it." }
        form.line method="post" action="zone" {
            input type="hidden" name="back" value=(back);
            label { "Time zone "
                input name="zone" value=(zone().name()) required maxlength="64" autocomplete="off"
                    spellcheck="false" placeholder="Europe/Berlin"; }
            button { "Use" }
        }
    };
    Frame { context: &context, title: "Time zone", queue: None, here: "zone", live: None }
        .page(&content)
}

/// Chooses the zone of the form, and leads back to the page before it.
pub(super) async fn choose(
    ForViewers(context): ForViewers,
    request: Request,
) -> Result<Response, Failure> {
    let fields = form(&context, request, &["back", "zone"]).await?;
    let back = back(fields.text("back").unwrap_or_default());
    let zone = Zone::named(fields.text("zone").unwrap_or_default()).map_err(Failure::Wrong)?;
    let name = encoded(zone.name().as_bytes());
    let mut response = see(&back);
    // Without a path, the cookie is for all pages next to this one.
    let cookie = format!("{ZONE_COOKIE}={name}; Max-Age={YEAR}; SameSite=Strict");
    if let Ok(cookie) = HeaderValue::try_from(cookie) {
        response.headers_mut().insert(SET_COOKIE, cookie);
    }
    Ok(response)
}

/// The page next to this one that an address names, or that of all queues.
fn back(referer: &str) -> String {
    let (path, query) = referer.split_once('?').unwrap_or((referer, ""));
    let page = path.rsplit('/').next().unwrap_or_default();
    let query = query.split('&').filter(|pair| !pair.is_empty() && !pair.starts_with("note="));
    let query: String = query.map(|pair| format!("{pair}&")).collect();
    if PAGES.contains(&page) {
        format!("{page}?{query}note=zone")
    } else {
        "queues?note=zone".to_owned()
    }
}

/// The pages that a link may lead to. Other paths only take forms.
const PAGES: [&str; 16] = [
    "queues",
    "queue",
    "messages",
    "message",
    "dead",
    "groups",
    "job",
    "check",
    "server",
    "workers",
    "schedules",
    "find",
    "search",
    "send",
    "edit",
    "zone",
];

const YEAR: u32 = 31_536_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_visitor_goes_back_to_a_page_of_the_dashboard_only() {
        for (referer, to) in [
            ("http://a/q/dead?queue=x&note=zone", "dead?queue=x&note=zone"),
            ("http://a/queues", "queues?note=zone"),
            ("http://a/q/", "queues?note=zone"),
            // A question after a form, which a link cannot ask.
            ("http://a/q/bulk?queue=x", "queues?note=zone"),
            ("", "queues?note=zone"),
            ("http://evil.example/x//evil.example", "queues?note=zone"),
            ("javascript:alert(1)", "queues?note=zone"),
        ] {
            assert_eq!(back(referer), to, "{referer}");
        }
        let pages = crate::pages::shown().map(|(path, ..)| path.trim_start_matches('/'));
        assert_eq!(pages, PAGES);
    }
}
