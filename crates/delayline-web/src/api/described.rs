//! What each request may carry, as `openapi.json` declares it.

use std::collections::HashMap;
use std::sync::LazyLock;

use axum::http::Method;
use serde_json::Value;

use crate::takes::Takes;

pub(super) const OPENAPI: &str = include_str!("../../assets/openapi.json");

/// What a request of this method to this path may carry.
pub(super) fn takes(path: &'static str, method: &Method) -> Takes {
    let declared = DECLARED.get(&(path, method.clone()));
    let declared = declared.map(|(names, body)| Takes { names, body: *body, ..Takes::default() });
    declared.unwrap_or_default()
}

/// The names of the parameters of each request, and whether it has a body.
type Declared = HashMap<(&'static str, Method), (Vec<&'static str>, bool)>;

static DECLARED: LazyLock<Declared> = LazyLock::new(|| declared(&DESCRIPTION).unwrap_or_default());

static DESCRIPTION: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(OPENAPI).unwrap_or_default());

fn declared(description: &'static Value) -> Option<Declared> {
    let mut declared = HashMap::new();
    for (path, methods) in description["paths"].as_object()? {
        for (method, operation) in methods.as_object()? {
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            let names = parameters.filter_map(|it| match it["$ref"].as_str() {
                Some(reference) => description.pointer(&reference[1..])?["name"].as_str(),
                None => it["name"].as_str(),
            });
            let method = method.to_ascii_uppercase().parse().ok()?;
            let has_body = operation["requestBody"].is_object();
            declared.insert((path.as_str(), method), (names.collect(), has_body));
        }
    }
    Some(declared)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_tells_what_each_request_takes() {
        let expect = |path, method, names: &[&str], body| {
            let takes = takes(path, &method);
            assert_eq!((takes.names, takes.body), (names, body), "{method} {path}");
        };
        let messages = "/queues/{queue}/messages";
        expect(messages, Method::GET, &["state", "after", "limit"], false);
        expect(messages, Method::POST, &[], true);
        expect("/queues/{queue}/forecast", Method::GET, &["within"], false);
        expect("/queues/{queue}/pause", Method::POST, &[], false);
    }
}
