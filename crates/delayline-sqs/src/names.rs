//! Names, URLs and ARNs of queues.

use percent_encoding::percent_decode_str;

use crate::error::Error;

/// The account of all queues.
pub(crate) const ACCOUNT: &str = "000000000000";

/// How the names of FIFO queues end.
pub(crate) const FIFO: &str = ".fifo";

/// ARNs of queues.
pub(crate) struct Arn;

impl Arn {
    pub(crate) fn write(region: &str, queue: &str) -> String {
        format!("arn:aws:sqs:{region}:{ACCOUNT}:{queue}")
    }

    /// The name of the queue of an ARN; `None` for another service or account.
    pub(crate) fn queue(arn: &str) -> Option<String> {
        let mut parts = arn.splitn(6, ':');
        let mut next = || parts.next();
        match (next(), next(), next(), next(), next(), next()) {
            (Some("arn"), Some(_), Some("sqs"), Some(_), Some(ACCOUNT), Some(queue)) => {
                Some(queue.to_owned()).filter(|queue| !queue.is_empty())
            }
            _ => None,
        }
    }
}

/// The URL of a queue.
pub(crate) fn url(base: &str, queue: &str) -> String {
    format!("{base}/{ACCOUNT}/{queue}")
}

/// Returns a URL or a path of a request without the path at which the URLs of queues begin. A proxy
/// may have removed it already.
pub(crate) fn below<'a>(base: &str, url: &'a str) -> &'a str {
    let prefix = path_of(base);
    match path_of(url).strip_prefix(prefix) {
        Some("") if !prefix.is_empty() => "/",
        Some(rest) if !prefix.is_empty() && rest.starts_with('/') => rest,
        _ => url,
    }
}

/// The path of a URL, or the path itself.
fn path_of(url: &str) -> &str {
    match url.split_once("://") {
        Some((_, rest)) => rest.find('/').map_or("", |at| rest.split_at(at).1),
        None => url,
    }
}

/// The name of the queue that a URL, a path or a bare name stands for.
///
/// # Errors
///
/// If the URL belongs to another account.
pub(crate) fn of_url(url: &str) -> Result<String, Error> {
    let path = match url.split_once("://") {
        Some((_, rest)) => rest.split_once('/').map(|(_, path)| path).unwrap_or_default(),
        None => url.trim_start_matches('/'),
    };
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let path = percent_decode_str(path).decode_utf8_lossy();
    match path.split_once('/') {
        Some((ACCOUNT | "queue", name)) if !name.is_empty() => Ok(name.to_owned()),
        None if !url.contains('/') && !path.is_empty() => Ok(path.into_owned()),
        _ => Err(Error::no_queue()),
    }
}

/// Checks the name of a queue to create.
pub(crate) fn valid(name: &str, is_strict: bool) -> Result<(), Error> {
    let is_sqs = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    let stem = name.strip_suffix(FIFO).unwrap_or(name);
    if !stem.is_empty() && name.len() <= 80 && stem.chars().all(is_sqs) {
        return Ok(());
    }
    if is_strict || name.parse::<delayline::admin::QueueName>().is_err() {
        let why =
            "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length";
        return Err(Error::value(why));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_arns_and_names_lead_to_queues() {
        for url in [
            "http://localhost:9324/000000000000/shop/orders",
            "https://sqs.eu-central-1.amazonaws.com/000000000000/shop%2Forders?x=1",
            "http://localhost:9324/queue/shop/orders",
            "/000000000000/shop/orders",
        ] {
            assert_eq!(of_url(url).unwrap(), "shop/orders", "{url}");
        }
        assert_eq!(of_url("orders").unwrap(), "orders");
        for url in ["", "/", "http://localhost:9324", "http://localhost/123456789012/orders"] {
            assert!(of_url(url).is_err(), "{url}");
        }
        let arn = Arn::write("us-east-1", "orders");
        assert_eq!(Arn::queue(&arn).as_deref(), Some("orders"));
        for arn in ["", "arn:aws:sns:us-east-1:000000000000:a", "arn:aws:sqs:us-east-1:1:a"] {
            assert_eq!(Arn::queue(arn), None, "{arn}");
        }
    }

    #[test]
    fn names_are_those_of_sqs_or_ours() {
        for (name, is_valid, is_valid_strictly) in [
            ("orders", true, true),
            ("orders.fifo", true, true),
            ("shop/orders", true, false),
            ("a.b", true, false),
            ("a b", false, false),
            ("", false, false),
        ] {
            assert_eq!(valid(name, false).is_ok(), is_valid, "{name}");
            assert_eq!(valid(name, true).is_ok(), is_valid_strictly, "{name}");
        }
    }
}
