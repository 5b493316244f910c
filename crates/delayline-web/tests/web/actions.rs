//! What buttons do.

use delayline::Found;
use delayline::message::{MessageState, Status};
use delayline_web::Role;

use crate::support::{Raws, get, let_die, orders, post, send, send_later, site};

async fn status(queue: &Raws, id: &str) -> Option<Status> {
    match queue.get(id).await.unwrap() {
        Found::Live(message) => Some(message.info.state.status()),
        Found::Finished(status) => Some(status),
        _ => None,
    }
}

#[tokio::test]
async fn a_queue_is_paused_and_resumed() {
    let orders = orders().await;
    let site = site(&orders, Role::Operator);
    for (action, paused, button) in
        [("pause", true, "Resume deliveries"), ("resume", false, "Pause deliveries")]
    {
        let next = post(&site, &format!("/{action}?queue=orders"), "").await.leads_to();
        assert_eq!(orders.stats().await.unwrap().paused, paused);
        get(&site, &next).await.status(200).has(button).has(r#"role="status""#);
    }
}

#[tokio::test]
async fn a_message_is_cancelled_once_the_visitor_is_sure() {
    let orders = orders().await;
    send_later(&orders, "order-1", 60).await;
    let site = site(&orders, Role::Operator);
    let uri = "/cancel?queue=orders&id=order-1";
    post(&site, uri, "").await.status(200).has("Cancel order-1?").has("cannot be undone");
    assert_eq!(status(&orders, "order-1").await, Some(Status::Scheduled));
    let next = post(&site, uri, "sure=yes").await.leads_to();
    assert_eq!(status(&orders, "order-1").await, Some(Status::Cancelled));
    get(&site, &next).await.status(200).has("Cancelled.");
    let next = post(&site, "/cancel?queue=orders&id=absent", "sure=yes").await.leads_to();
    get(&site, &next).await.status(200).has("the message no longer exists");
}

#[tokio::test]
async fn a_dead_letter_is_redriven_or_purged() {
    let orders = orders().await;
    let_die(&orders, &["bad-1", "bad-2"], "no").await;
    let site = site(&orders, Role::Admin);
    get(&site, "/message?queue=orders&id=bad-1").await.status(200).has("Redrive").has("Delete...");
    let next = post(&site, "/redrive?queue=orders&id=bad-1", "").await.leads_to();
    assert_eq!(status(&orders, "bad-1").await, Some(Status::Ready));
    get(&site, &next).await.status(200).has("Redriven.");
    let uri = "/purge?queue=orders&id=bad-2";
    post(&site, uri, "").await.status(200).has("Delete bad-2?");
    assert_eq!(status(&orders, "bad-2").await, Some(Status::Dead));
    post(&site, uri, "sure=yes").await.leads_to();
    assert_eq!(status(&orders, "bad-2").await, Some(Status::Purged));
    let next = post(&site, "/redrive?queue=orders&id=bad-1", "").await.leads_to();
    get(&site, &next).await.status(200).has("it is not a dead letter");
}

#[tokio::test]
async fn selected_letters_or_a_whole_page_are_redriven() {
    let orders = orders().await;
    let_die(&orders, &["a b", "b&c", "c%2F", "d"], "no").await;
    let site = site(&orders, Role::Operator);
    let uri = "/redrive?queue=orders";
    let page = get(&site, "/dead?queue=orders").await.status(200);
    // A browser encodes what stands in the form once more.
    let field = |id: &str| format!(r#"name="id" value="{id}""#);
    let page = page.has(&field("a%20b")).has(&field("b%26c")).has(&field("c%252F"));
    let page = page.has("Redrive these 4").lacks("Delete");
    drop(page);
    let fields = "scope=selected&id=a%2520b&id=b%2526c&page=a%2520b&page=d";
    let next = post(&site, uri, fields).await.leads_to();
    get(&site, &next).await.status(200).has("Redriven.").has("Messages: 2.").lacks("Not done");
    for (id, is) in [("a b", Status::Ready), ("b&c", Status::Ready), ("d", Status::Dead)] {
        assert_eq!(status(&orders, id).await, Some(is), "{id}");
    }
    let fields = "scope=page&page=a%2520b&page=c%25252F&page=d";
    let next = post(&site, uri, fields).await.leads_to();
    get(&site, &next).await.status(200).has("Messages: 2.").has("changed meanwhile: 1.");
    assert_eq!(orders.stats().await.unwrap().dead, 0);
    for wrong in ["", "scope=selected", "scope=all&id=d", "scope=selected&id=", "scope=page&id=d"] {
        post(&site, uri, wrong).await.status(400);
    }
}

#[tokio::test]
async fn many_letters_are_purged_once_the_visitor_is_sure() {
    let orders = orders().await;
    let_die(&orders, &["a", "b", "c"], "no").await;
    let site = site(&orders, Role::Admin);
    let page = post(&site, "/purge?queue=orders", "scope=selected&id=a&id=b&page=c").await;
    let page = page.status(200).has("Delete 2 messages?");
    let page = page.has(r#"name="id" value="a""#).has(r#"name="scope" value="selected""#);
    drop(page);
    for wrong in ["order=foo", "died_after=xyz"] {
        let uri = format!("/purge?queue=orders&{wrong}");
        post(&site, &uri, "scope=selected&id=a&id=b&sure=yes").await.status(400);
    }
    assert_eq!(orders.stats().await.unwrap().dead, 3);
    post(&site, "/purge?queue=orders", "scope=selected&id=a&id=b&sure=yes").await.leads_to();
    assert_eq!(orders.stats().await.unwrap().dead, 1);
}

#[tokio::test]
async fn a_message_with_a_worker_is_only_asked_to_end() {
    let orders = orders().await;
    send(&orders, "order-1", "1").await;
    let claim = delayline_claim();
    orders.apply(&claim).await.unwrap();
    let site = site(&orders, Role::Operator);
    let page = get(&site, "/messages?queue=orders&state=leased").await.status(200);
    page.has("Leases: 1,").has("The first one ends at <time ");
    let next = post(&site, "/cancel?queue=orders&id=order-1", "sure=yes").await.leads_to();
    let page = get(&site, &next).await.status(200);
    page.has("A worker holds the message").has("A cancel was requested").lacks("Run now");
    let Found::Live(message) = orders.get("order-1").await.unwrap() else { panic!("it is gone") };
    assert!(matches!(message.info.state, MessageState::Leased { cancel_requested: true, .. }));
    get(&site, "/messages?queue=orders&state=leased").await.status(200).has("cancel requested");
}

fn delayline_claim() -> delayline::backend::Op {
    delayline::backend::Op::Claim(delayline::backend::Claim::new(
        "worker".try_into().unwrap(),
        delayline::backend::ClaimId::from_bytes([7; 16]),
        1,
        delayline::backend::Millis::new(60_000).unwrap(),
    ))
}

#[tokio::test]
async fn a_repair_is_asked_about_first() {
    let orders = orders().await;
    let site = site(&orders, Role::Admin);
    post(&site, "/repair?queue=orders", "").await.status(200).has("Repair orders?");
    let page = post(&site, "/repair?queue=orders", "sure=yes").await.status(200);
    page.has("0 messages examined, nothing is wrong.");
}
