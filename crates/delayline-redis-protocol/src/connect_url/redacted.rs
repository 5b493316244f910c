//! URLs without what may be secret.

use super::scheme::{Scheme, Shape};

/// Returns a URL for an error or a log: without user name, password, query and fragment. What
/// cannot be separated from these is left out with them, so that a password which should have been
/// percent-encoded is not shown either.
#[must_use]
pub fn redacted(url: &str) -> String {
    // An address or a path, and not a word that may be a password.
    let is_path = url.starts_with('/') && !url.starts_with("//") || url.starts_with("./");
    if url.is_empty() || is_path && !url.contains('@') {
        let (path, query) = parted(url, &['?']);
        return short(&format!("{path}{query}"));
    }
    let Some((scheme, rest)) = url.split_once(':') else { return HIDDEN.to_owned() };
    let is_scheme = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    if !scheme.bytes().all(is_scheme) {
        return HIDDEN.to_owned();
    }
    let is_file = scheme.eq_ignore_ascii_case("file")
        || Scheme::of(scheme).is_some_and(|scheme| scheme.shape == Shape::Unix);
    let slashes = if rest.starts_with("//") { "//" } else { "" };
    if slashes.is_empty() && is_file {
        let (path, query) = parted(rest, &['?']);
        return short(&format!("{scheme}:{path}{query}"));
    }
    let rest = rest.strip_prefix("//").unwrap_or(rest);
    let (login, rest) = match rest.rsplit_once('@') {
        // It may be the last one of a password in a query.
        Some((login, _)) if login.contains(['?', '#']) => {
            return format!("{scheme}:{slashes}{HIDDEN}");
        }
        Some((_, rest)) => ("***@", rest),
        None => ("", rest),
    };
    let (place, query) = parted(rest, &['?', '#']);
    let (hosts, path) = place.split_once('/').unwrap_or((place, ""));
    // Without an @, `default:secret` looks like a host and its port.
    if !hosts.split(',').all(is_host) || path.contains(':') && !is_file {
        return format!("{scheme}:{slashes}{login}{HIDDEN}");
    }
    short(&format!("{scheme}:{slashes}{login}{place}{query}"))
}

/// Whether there is nothing but digits behind the host.
fn is_host(text: &str) -> bool {
    let is_of_addresses = |byte: u8| byte.is_ascii_hexdigit() || b"[]:.%".contains(&byte);
    if text.starts_with('[') {
        return text.bytes().all(is_of_addresses);
    }
    text.split_once(':').is_none_or(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The text before the first of these characters, and a mark for the rest.
fn parted<'a>(text: &'a str, ends: &[char]) -> (&'a str, &'static str) {
    match text.find(ends) {
        Some(end) if text[end..].starts_with('#') => (&text[..end], "#..."),
        Some(end) => (&text[..end], "?..."),
        None => (text, ""),
    }
}

fn short(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

pub(super) const HIDDEN: &str = "(not shown)";

const LONGEST: usize = 200;
