//! The parameters in the URL of a request, which `openapi.json` declares.

use std::collections::HashMap;
use std::sync::LazyLock;

use axum::extract::Request;
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use super::problem::Problem;
use crate::failure::Failure;
use crate::params::Params;

pub(super) const OPENAPI: &str = include_str!("../../assets/openapi.json");

/// Refuses a request to `path` with a parameter that it does not take: a misspelt one would be
/// ignored, and its answer would be about something else.
pub(super) async fn check(path: &'static str, request: Request, next: Next) -> Response {
    let method = if request.method() == Method::HEAD { &Method::GET } else { request.method() };
    let names = DECLARED.get(&(path, method.clone())).map_or(&[][..], Vec::as_slice);
    match checked(request.uri().query().unwrap_or_default(), names) {
        Ok(()) => next.run(request).await,
        Err(failure) => Problem(failure).into_response(),
    }
}

fn checked(query: &str, names: &[&str]) -> Result<(), Failure> {
    let params = Params::read(query.as_bytes());
    if params.names().any(|name| !names.contains(&name)) {
        let may = match names {
            [] => "have no parameters".to_owned(),
            _ => format!("only have the parameters {names:?}"),
        };
        return Err(Failure::Wrong(format!("the URL may {may}")));
    }
    for name in names {
        if params.all(name).count() > 1 {
            return Err(Failure::Wrong(format!("the URL has `{name}` more than once")));
        }
        if params.bytes(name).is_some_and(|value| std::str::from_utf8(value).is_err()) {
            return Err(Failure::Wrong(format!("`{name}` must be text in UTF-8")));
        }
    }
    Ok(())
}

/// The names of the parameters of each request that has any.
static DECLARED: LazyLock<HashMap<(&str, Method), Vec<&str>>> =
    LazyLock::new(|| declared(&DESCRIPTION).unwrap_or_default());

static DESCRIPTION: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(OPENAPI).unwrap_or_default());

fn declared(description: &Value) -> Option<HashMap<(&str, Method), Vec<&str>>> {
    let mut declared = HashMap::new();
    for (path, methods) in description["paths"].as_object()? {
        for (method, operation) in methods.as_object()? {
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            let names = parameters.filter_map(|it| match it["$ref"].as_str() {
                Some(reference) => description.pointer(&reference[1..])?["name"].as_str(),
                None => it["name"].as_str(),
            });
            let method = method.to_ascii_uppercase().parse().ok()?;
            declared.insert((path.as_str(), method), names.collect());
        }
    }
    Some(declared)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(path: &'static str, method: Method) -> Vec<&'static str> {
        DECLARED[&(path, method)].clone()
    }

    #[test]
    fn the_description_tells_what_each_request_takes() {
        let messages = "/queues/{queue}/messages";
        assert_eq!(names(messages, Method::GET), ["state", "after", "limit"]);
        assert_eq!(names(messages, Method::POST), [""; 0]);
        assert_eq!(names("/queues/{queue}/forecast", Method::GET), ["within"]);
    }

    #[test]
    fn each_parameter_is_known_and_given_once() {
        let detail = |query| checked(query, &["state", "limit"]).map_err(|it| it.detail());
        assert_eq!(detail(""), Ok(()));
        assert_eq!(detail("limit=1&%73tate=&"), Ok(()));
        let only = Err("the URL may only have the parameters [\"state\", \"limit\"]".to_owned());
        assert_eq!(detail("stauts=dead"), only);
        assert_eq!(detail("=1"), only);
        assert_eq!(detail("limit=1&limit=1"), Err("the URL has `limit` more than once".to_owned()));
        assert_eq!(detail("state=%ff"), Err("`state` must be text in UTF-8".to_owned()));
        let none = checked("delay=5s", &[]).map_err(|it| it.detail());
        assert_eq!(none, Err("the URL may have no parameters".to_owned()));
    }
}
