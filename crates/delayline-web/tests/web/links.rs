//! Every link and form of the pages is taken as it is.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use axum::Router;
use delayline::schedules::{Schedules, Spec};
use delayline_web::{Access, Dashboard, Role};

use crate::support::{get, let_die, open, post, send, send_later};

/// A request that a page offers: its address, and the fields of a form that is posted.
type Offer = (String, Option<String>);

/// The value of an attribute of a tag.
fn attribute<'a>(tag: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = tag.split_once(&format!(" {name}=\""))?;
    rest.split('"').next()
}

fn tags<'a>(text: &'a str, name: &'static str) -> impl Iterator<Item = &'a str> {
    text.split('<').filter(move |tag| tag.split([' ', '>']).next() == Some(name))
}

/// What a browser would ask for from this page.
fn offers(at: &str, page: &str) -> Vec<Offer> {
    let page = page.replace("&amp;", "&");
    let links = tags(&page, "a").filter_map(|tag| attribute(tag, "href"));
    let links = links.filter(|it| !it.starts_with('#') && !it.starts_with("api/"));
    let mut all: Vec<Offer> = links.map(|it| (it.to_owned(), None)).collect();
    for form in page.split("<form").skip(1) {
        let form = format!(" {}", form.split("</form>").next().unwrap());
        let head = form.split('>').next().unwrap();
        let fields = ["input", "select", "textarea"].into_iter();
        let fields = fields.flat_map(|name| tags(&form, name)).filter_map(|tag| {
            let value = attribute(tag, "value").unwrap_or_default();
            Some(format!("{}={}&", attribute(tag, "name")?, value.replace(' ', "+")))
        });
        let fields: String = fields.collect();
        for button in tags(&form, "button") {
            let of = |name: &str, usual| {
                let own = attribute(button, &format!("form{name}"));
                own.or_else(|| attribute(head, name)).unwrap_or(usual)
            };
            let pressed = attribute(button, "name")
                .map(|name| format!("{name}={}", attribute(button, "value").unwrap_or_default()));
            let fields = format!("{fields}{}", pressed.unwrap_or_default());
            all.push(match of("method", "get") {
                "get" => (format!("{}?{fields}", of("action", at)), None),
                _ => (of("action", at).to_owned(), Some(fields)),
            });
        }
    }
    all
}

/// Follows all offers, and returns the paths that they lead to.
async fn walk(site: &Router) -> BTreeSet<String> {
    let (mut seen, mut paths) = (BTreeSet::new(), BTreeSet::new());
    let mut next = VecDeque::<Offer>::from([("queues".to_owned(), None)]);
    while let Some((address, fields)) = next.pop_front() {
        let (path, query) = address.split_once('?').unwrap_or((&address, ""));
        // A message or a page of a list stands for all whose ids differ in their digits.
        let names = query.split('&').map(|pair| match pair.split_once('=') {
            Some(("queue", queue)) => queue,
            Some(("id", id)) => id.trim_end_matches(|it: char| it.is_ascii_digit()),
            other => other.unwrap_or_default().0,
        });
        let names: BTreeSet<&str> = names.collect();
        if address.is_empty() || !seen.insert(format!("{path} {names:?} {fields:?}")) {
            continue;
        }
        paths.insert(path.split('#').next().unwrap().to_owned());
        let uri = format!("/{}", address.split('#').next().unwrap());
        let answer = match &fields {
            None => get(site, &uri).await,
            Some(fields) => post(site, &uri, fields).await,
        };
        let said = String::from_utf8_lossy(&answer.body);
        let refusals = ["has the unknown", "more than once", "UTF-8", "takes no body"];
        for refusal in refusals.into_iter().chain(["there is no such queue here"]) {
            assert!(!said.contains(refusal), "{address} {fields:?}: {said}");
        }
        next.push_back((answer.header("location").to_owned(), None));
        next.extend(offers(&address, &said));
    }
    paths
}

#[tokio::test]
async fn each_link_and_each_form_is_taken_as_it_is() {
    let connection = delayline::connect("memory:").await.unwrap();
    let orders = open(&connection, "orders").await;
    let_die(&orders, &["dead-1", "dead-2"], "no such shop 7").await;
    for n in 0..60 {
        send_later(&orders, &format!("later-{n}"), 3_600).await;
    }
    send(&orders, "ready", "1").await;
    let schedules = Schedules::open(&connection).await.unwrap();
    let hourly = Spec::every(Duration::from_secs(3_600), "orders").unwrap();
    schedules.put("hourly", &hourly).await.unwrap();
    let dashboard = Dashboard::new(Access::everyone(Role::Admin)).queue(orders);
    let site = dashboard.schedules(schedules).workers(connection).router().unwrap();
    let paths: Vec<String> = walk(&site).await.into_iter().collect();
    let expected = "bulk cancel check content dead edit find groups job limits message messages \
                    pause purge queue queues redrive reschedule resume schedule schedules \
                    search send workers zone";
    assert_eq!(paths.join(" "), expected);
}
