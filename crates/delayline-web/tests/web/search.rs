//! Searches through messages, on a page and in the API.

use std::time::Duration;

use delayline::Bytes;
use delayline::message::Headers;
use delayline_web::{Access, Credential, Dashboard, Role, Router, Visitor};
use serde_json::{Value, json};

use crate::hostile::inert;
use crate::support::{JSON, Raws, ask, call, ended, get, orders, post, send, send_later, site};

/// Starts a search by its form, and returns where its page is.
async fn start(site: &Router, fields: &str) -> String {
    let to = post(site, "/search?queue=orders", fields).await.leads_to();
    assert!(to.starts_with("/search?queue=orders&search="), "{to}");
    to
}

/// Starts a search by the API, and returns where it is.
async fn start_by_api(site: &Router, body: &Value) -> String {
    let path = "/queues/orders/searches";
    let answer = call(site, "POST", path, &body.to_string()).await.status(202);
    assert_eq!(
        answer.header("location"),
        format!("searches/{}", answer.json()["id"].as_str().unwrap())
    );
    format!("{path}/{}", answer.json()["id"].as_str().unwrap())
}

fn ids(search: &Value) -> Vec<&str> {
    let messages = search["messages"].as_array().unwrap();
    messages.iter().map(|message| message["id"].as_str().unwrap()).collect()
}

async fn fill(orders: &Raws, count: usize) {
    let drafts = (0..count).map(|n| {
        let payload = Bytes::from(format!("<{n}>"));
        orders.message(&payload).id(format!("m-{n}")).due_in(Duration::from_secs(3_600))
    });
    assert!(orders.send_many(drafts).await.iter().all(Result::is_ok));
}

#[tokio::test]
async fn a_search_shows_its_progress_and_what_it_finds() {
    let orders = orders().await;
    fill(&orders, 500).await;
    let draft = orders.message(&Bytes::from_static(b"{\"customer\":17}")).id("c-17");
    let draft = draft
        .header("region", "eu-west")
        .header(Headers::KIND, "invoice")
        .group("shop-7")
        .due_in(Duration::from_secs(60));
    assert!(draft.send().await.unwrap().is_accepted());
    let site = site(&orders, Role::Operator);
    get(&site, "/messages?queue=orders&state=scheduled").await.has("search?queue=orders");
    inert(&get(&site, "/search?queue=orders").await.status(200));

    let to = start(&site, "state=&kind=invoice&header=region%3Deu&content=customer%22%3A17").await;
    let asking = async {
        loop {
            let page = get(&site, &to).await.status(200);
            inert(&page);
            // What was asked stays in the form, and the next search replaces this one.
            let page = page.has(r#"value="region=eu""#).has(r#"name="replaces""#);
            if page.header("refresh").is_empty() {
                return page.lacks(">Stop</button>");
            }
            assert_eq!(page.header("refresh"), "2");
            page.has("Searching: ").has(">Stop</button>");
            tokio::task::yield_now().await;
        }
    };
    let page = tokio::time::timeout(Duration::from_secs(60), asking).await.unwrap();
    page.has("Finished: 501 of 501").has("c-17").has("invoice</td>").lacks("m-1<");
    let other = start_by_api(&site, &json!({"content": "<7", "state": "scheduled"})).await;
    let search = ended(&site, &other).await;
    assert_eq!((search["state"].as_str(), ids(&search).len()), (Some("finished"), 11));
    assert_eq!((&search["examined"], &search["total"]), (&501.into(), &501.into()));
    assert!(search["messages"][0].get("payload").is_none(), "{search}");
    let of_group = start_by_api(&site, &json!({"group": "shop-7"})).await;
    let search = ended(&site, &of_group).await;
    assert_eq!((ids(&search), &search["examined"]), (vec!["c-17"], &501.into()));
}

#[tokio::test]
async fn only_those_who_see_contents_search_and_each_sees_their_own() {
    let orders = orders().await;
    send(&orders, "a", "secret").await;
    let access = Access::credentials([
        Credential::bearer("anna", "a", Role::Operator),
        Credential::bearer("bert", "b", Role::Operator),
        Credential::bearer("carl", "c", Role::Viewer),
    ]);
    let site = Dashboard::new(access).queue(orders.clone()).router().unwrap();
    let ask = async |who: &str, method: &str, path: &str, body: &str| {
        let headers = [JSON, ("authorization", &format!("Bearer {who}"))];
        ask(&site, method, &format!("/api/v1{path}"), &headers, body).await
    };
    let path = "/queues/orders/searches";
    ask("c", "POST", path, r#"{"content":"secret"}"#).await.status(403).lacks("\"a\"");
    let id = ask("a", "POST", path, r#"{"content":"secret"}"#).await.status(202).json();
    let own = format!("{path}/{}", id["id"].as_str().unwrap());
    ask("a", "GET", &own, "").await.status(200);
    ask("b", "GET", &own, "").await.status(404);
    ask("b", "DELETE", &own, "").await.status(404);
    ask("c", "GET", &own, "").await.status(403);
    let viewer = crate::support::site(&orders, Role::Viewer);
    get(&viewer, "/queue?queue=orders").await.status(200).lacks("search?queue");
    get(&viewer, "/search?queue=orders").await.status(403);
    post(&viewer, "/search?queue=orders", "content=secret").await.status(403);
    // For this visitor, the queue does not exist.
    let other = Access::resolver(|_| Some(Visitor::new("dora", Role::Admin).only_queues(["x"])));
    let other = Dashboard::new(other).queue(orders.clone()).router().unwrap();
    post(&other, "/search?queue=orders", "content=secret").await.status(404);
}

#[tokio::test]
async fn what_is_redacted_is_not_found() {
    let orders = orders().await;
    send(&orders, "a", "secret").await;
    let dashboard = Dashboard::new(Access::everyone(Role::Admin)).queue(orders);
    let site = dashboard.redact(|_, message| message.payload = Bytes::new()).router().unwrap();
    let path = start_by_api(&site, &json!({"content": "secret"})).await;
    let search = ended(&site, &path).await;
    assert_eq!((ids(&search), &search["examined"]), (vec![], &1.into()));
}

#[tokio::test]
async fn a_search_is_stopped_by_its_visitor_or_by_the_next_one() {
    let orders = orders().await;
    fill(&orders, 5_000).await;
    let site = site(&orders, Role::Admin);
    let stopped = start_by_api(&site, &json!({"content": "absent"})).await;
    call(&site, "DELETE", &stopped, "").await.status(202);
    assert_eq!(ended(&site, &stopped).await["state"], "stopped");

    let first = start(&site, "content=absent").await;
    let id = first.rsplit('=').next().unwrap();
    start(&site, &format!("content=other&replaces={id}")).await;
    let path = format!("/queues/orders/searches/{id}");
    assert_eq!(ended(&site, &path).await["state"], "stopped");
    get(&site, &first).await.status(200).has("Stopped: ");
    let second = start(&site, "content=absent").await;
    let id = second.rsplit('=').next().unwrap();
    let to = post(&site, "/search?queue=orders", &format!("stop={id}")).await.leads_to();
    assert_eq!(to, second);
    assert!(
        ended(&site, &format!("/queues/orders/searches/{id}")).await["examined"].as_u64()
            < Some(5_000)
    );
}

#[tokio::test]
async fn searches_are_few_and_end_without_a_viewer() {
    let orders = orders().await;
    fill(&orders, 5_000).await;
    let site = site(&orders, Role::Admin);
    let mut paths = Vec::new();
    for _ in 0..4 {
        paths.push(start_by_api(&site, &json!({"content": "absent"})).await);
    }
    let body = json!({"content": "absent"}).to_string();
    let busy = call(&site, "POST", "/queues/orders/searches", &body).await.status(409);
    busy.has("4 searches are running");
    tokio::time::pause();
    // The first one has a viewer.
    tokio::time::advance(Duration::from_secs(29)).await;
    call(&site, "GET", &paths[0], "").await.status(200).has("running");
    tokio::time::advance(Duration::from_secs(2)).await;
    tokio::task::yield_now().await;
    call(&site, "GET", &paths[0], "").await.status(200).has("running");
    for path in &paths[1..] {
        assert_eq!(ended(&site, path).await["state"], "abandoned");
    }
    start_by_api(&site, &json!({"content": "absent"})).await;
}

#[tokio::test]
async fn many_matches_end_a_search() {
    let orders = orders().await;
    fill(&orders, 1_000).await;
    send_later(&orders, "later", 7_200).await;
    let site = site(&orders, Role::Admin);
    let path = start_by_api(&site, &json!({"content": "<"})).await;
    let search = ended(&site, &path).await;
    assert_eq!((search["state"].as_str(), ids(&search).len()), (Some("full"), 200));
    let id = search["id"].as_str().unwrap();
    let page = get(&site, &format!("/search?queue=orders&search={id}")).await.status(200);
    page.has("because there are many").has("200</strong> found");
}

#[tokio::test]
async fn hostile_and_senseless_searches_are_harmless() {
    let orders = orders().await;
    send(&orders, "a", "<script>alert(1)</script>").await;
    let site = site(&orders, Role::Admin);
    let to = start(&site, "content=%3Cscript%3E&kind=&header=").await;
    let id = to.rsplit('=').next().unwrap();
    ended(&site, &format!("/queues/orders/searches/{id}")).await;
    let page = get(&site, &to).await.status(200);
    inert(&page);
    page.has("value=\"&lt;script&gt;\"").has("1</strong> found");
    let long = "x".repeat(1_025);
    for fields in [
        "",
        "kind=&header=&content=",
        "state=unknown&kind=a",
        "content=%ff",
        &format!("kind={long}"),
    ] {
        post(&site, "/search?queue=orders", fields).await.status(400);
    }
    for body in [
        "{}",
        r#"{"content":1}"#,
        r#"{"content":""}"#,
        r#"{"state":"x","kind":"a"}"#,
        r#"{"kind":"a","x":1}"#,
    ] {
        call(&site, "POST", "/queues/orders/searches", body).await.status(400);
    }
    for path in ["/search?queue=orders&search=x", "/search?queue=other"] {
        get(&site, path).await.status(404);
    }
    call(&site, "GET", "/queues/orders/searches/%ff", "").await.status(404);
}
