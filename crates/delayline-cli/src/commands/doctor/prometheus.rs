//! The alerts of a Prometheus server.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use delayline_admin::doctor::{Finding, examine_alerts};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::header::{AUTHORIZATION, HeaderValue, USER_AGENT};
use hyper::{Request, StatusCode, Uri};
use percent_encoding::percent_decode_str;

use crate::failure::Failure;
use crate::http::{self, Client};

/// A Prometheus server.
pub(super) struct Prometheus {
    /// Its URL, without credentials and without a `/` at the end.
    place: String,
    url: Uri,
    client: Client,
    authorization: Option<HeaderValue>,
}

impl Prometheus {
    /// Checks the URL and prepares a connection.
    pub(super) fn new(text: &str) -> Result<Self, Failure> {
        let (place, user) = without_user(text);
        let usage = |why: &str| Failure::usage(format!("the URL of --prometheus {why}"));
        if place.contains(['@', '?', '#']) {
            return Err(usage(
                "must have no query; in a user or password, write @ as %40, and so on",
            ));
        }
        let place = place.trim_end_matches('/').to_owned();
        http::url("--prometheus", &place).map_err(Failure::usage)?;
        let url: Uri = format!("{place}{RULES}").parse().map_err(|_| usage("is not valid"))?;
        let authorization = user.map(basic).transpose().map_err(|()| usage("is not valid"))?;
        let client = http::client(&url)?;
        Ok(Self { place, url, client, authorization })
    }

    /// Asks for the rules, and examines them.
    pub(super) async fn examine(&self) -> Vec<Finding> {
        let reply = tokio::time::timeout(TIMEOUT, self.rules()).await;
        let reply = reply.unwrap_or_else(|_| Err(format!("no reply within {TIMEOUT:?}")));
        examine_alerts(&self.place, reply.as_deref().map_err(Clone::clone))
    }

    async fn rules(&self) -> Result<Vec<u8>, String> {
        let request = Request::get(self.url.clone())
            .header(USER_AGENT, concat!("delayline/", env!("CARGO_PKG_VERSION")));
        let request = match &self.authorization {
            Some(value) => request.header(AUTHORIZATION, value),
            None => request,
        };
        let request = request.body(Full::default()).map_err(|error| format!("{error}"))?;
        let reply = self.client.request(request).await;
        let reply = reply.map_err(|error| http::told(&error))?;
        if reply.status() != StatusCode::OK {
            return Err(format!("the reply has HTTP status {}", reply.status().as_u16()));
        }
        match Limited::new(reply.into_body(), MOST_BYTES).collect().await {
            Ok(body) => Ok(body.to_bytes().into()),
            Err(error) if error.is::<LengthLimitError>() => {
                Err(format!("the reply is longer than {} MiB", MOST_BYTES >> 20))
            }
            Err(error) => Err(format!("the reply broke off: {error}")),
        }
    }
}

/// Splits a URL into the URL without credentials, and `user:password`.
fn without_user(text: &str) -> (String, Option<&str>) {
    let start = text.find("://").map_or(0, |at| at + 3);
    let (scheme, rest) = text.split_at(start);
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest[..end].rsplit_once('@') {
        Some((user, _)) => (format!("{scheme}{}", &rest[user.len() + 1..]), Some(user)),
        None => (text.to_owned(), None),
    }
}

/// The header for `user:password`, percent-encoded.
fn basic(user: &str) -> Result<HeaderValue, ()> {
    let (user, password) = user.split_once(':').unwrap_or((user, ""));
    let decoded = |text: &str| percent_decode_str(text).collect::<Vec<u8>>();
    let pair = [decoded(user), decoded(password)].join(&b':');
    let mut value =
        HeaderValue::try_from(format!("Basic {}", STANDARD.encode(pair))).map_err(|_| ())?;
    value.set_sensitive(true);
    Ok(value)
}

/// Only alerts, and not the label sets of each: older versions ignore these parameters.
const RULES: &str = "/api/v1/rules?type=alert&exclude_alerts=true";

const TIMEOUT: Duration = Duration::from_secs(10);

const MOST_BYTES: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_leave_the_url() {
        for (text, place, header) in [
            ("http://127.0.0.1:9090", "http://127.0.0.1:9090", None),
            ("http://[::1]:9090/", "http://[::1]:9090", None),
            ("https://a.example/prometheus/", "https://a.example/prometheus", None),
            ("http://u:p@a.example", "http://a.example", Some("Basic dTpw")),
            ("http://u:p%40%3A@a.example/", "http://a.example", Some("Basic dTpwQDo=")),
            ("http://u:p@x@a.example/", "http://a.example", Some("Basic dTpwQHg=")),
            ("http://u@a.example/p", "http://a.example/p", Some("Basic dTo=")),
        ] {
            let prometheus = Prometheus::new(text).unwrap();
            let is = prometheus.authorization.as_ref().map(|it| it.to_str().unwrap());
            assert_eq!((prometheus.place.as_str(), is), (place, header), "{text}");
            assert_eq!(prometheus.url.to_string(), format!("{place}{RULES}"));
        }
    }

    #[test]
    fn no_error_repeats_a_password() {
        for text in [
            "",
            "a.example",
            "ftp://u:hunter2@a.example",
            "http://u:hunter2@",
            "http://u:hunter2@:80",
            "http://u:hun/ter2@a.example",
            "http://u:hunter2#@a.example",
            "http://u:hunter2?@a.example",
            "http://a.example/?query=hunter2",
            "http://a.example/ hunter2",
            "u:hunter2@a.example",
            "http:u:hunter2@a.example",
        ] {
            let Err(error) = Prometheus::new(text) else { panic!("{text}") };
            let error = format!("{error:?}");
            assert!(!error.contains("ter2") && error.contains("--prometheus"), "{text}: {error}");
        }
    }
}
