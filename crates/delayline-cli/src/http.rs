//! An HTTP client. It follows no redirects, and ignores the proxies that the environment names.

use std::error::Error as _;
use std::time::Duration;

use delayline::Bytes;
use http_body_util::Full;
use hyper::Uri;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{self, Error};
use hyper_util::rt::{TokioExecutor, TokioTimer};

use crate::failure::Failure;

pub(crate) type Client = legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Reads the URL of a flag. No error repeats a password in it.
pub(crate) fn url(flag: &str, text: &str) -> Result<Uri, String> {
    let wrong = |why: &str| format!("the URL of {flag} {why}");
    let uri: Uri = text.parse().map_err(|_| wrong("is not valid"))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err(wrong("must begin with http:// or https://"));
    }
    match uri.authority() {
        Some(authority) if authority.as_str().contains('@') => {
            Err(wrong("must have no user and password"))
        }
        Some(authority) if !authority.host().is_empty() => Ok(uri),
        _ => Err(wrong("names no host")),
    }
}

/// A client for a URL.
pub(crate) fn client(url: &Uri) -> Result<Client, Failure> {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_connect_timeout(Some(CONNECT));
    let provider = rustls::crypto::ring::default_provider();
    let tls = HttpsConnectorBuilder::new();
    let tls = if url.scheme_str() == Some("https") {
        tls.with_provider_and_native_roots(provider)
            .map_err(|error| Failure::other("no certificate authorities were found", &error))?
    } else {
        let versions = rustls::ClientConfig::builder_with_provider(provider.into())
            .with_safe_default_protocol_versions()
            .map_err(|error| Failure::other("TLS cannot be used", &error))?;
        let none = rustls::RootCertStore::empty();
        tls.with_tls_config(versions.with_root_certificates(none).with_no_client_auth())
    };
    let connector = tls.https_or_http().enable_http1().wrap_connector(http);
    Ok(legacy::Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .build(connector))
}

/// An error in words, with its causes.
pub(crate) fn told(error: &Error) -> String {
    let mut words = "the request failed".to_owned();
    let mut cause = error.source();
    while let Some(error) = cause {
        words = format!("{words}: {error}");
        cause = error.source();
    }
    words
}

const CONNECT: Duration = Duration::from_secs(10);
/// Shorter than servers keep idle connections: gunicorn 2 s, Node.js and Apache 5 s. A request that
/// is written while its server closes the connection fails, and it is not repeated.
const IDLE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::url;

    #[test]
    fn urls_are_of_http_and_have_no_password() {
        for good in ["http://127.0.0.1:8080/x?y=1", "https://hooks.example/orders"] {
            assert!(url("--post", good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "hooks.example",
            "/orders",
            "ftp://hooks.example/",
            "file:///etc/passwd",
            "http://anna:hunter2@hooks.example/",
            "http://:80/hunter2",
            "http://hooks.example/ hunter2",
        ] {
            let error = url("--post", bad).unwrap_err();
            assert!(!error.contains("hunter2"), "{bad}: {error}");
        }
    }
}
