//! Consumers over HTTP.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::Request;
use delayline::message::Status;
use delayline::{Completion, Found};
use delayline_web::{Access, Credential, Dashboard, Role, Router};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::support::{Answer, JSON, ask, call, get, orders, send, site};
use crate::trouble::{Counted, Trouble};

pub async fn post(site: &Router, path: &str, body: &Value) -> Answer {
    call(site, "POST", &format!("/queues/orders/{path}"), &body.to_string()).await
}

pub async fn claim(site: &Router, body: Value) -> Value {
    post(site, "claim", &body).await.status(200).json()
}

/// The deliveries of a claim that does not wait.
pub async fn take(site: &Router, max: usize) -> Vec<Value> {
    let claimed = claim(site, json!({"max": max, "wait": "0s"})).await;
    claimed["deliveries"].as_array().unwrap().clone()
}

/// An item of a settlement or an extension for a delivery.
pub fn item(delivery: &Value, more: &Value) -> Value {
    let mut item = json!({"id": delivery["id"], "token": delivery["token"]});
    item.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    item
}

pub async fn settle(site: &Router, items: &[Value]) -> Vec<Value> {
    let answer = post(site, "settle", &json!({ "settlements": items })).await.status(200).json();
    answer["results"].as_array().unwrap().clone()
}

#[tokio::test]
async fn each_outcome_ends_a_lease_once() {
    let orders = orders().await;
    let site = site(&orders, Role::Worker);
    for id in ["ack", "retry", "later", "snooze", "release", "reject"] {
        send(&orders, id, id).await;
    }
    let taken = take(&site, 10).await;
    assert_eq!(taken[0]["payload"], "ack");
    let outcomes = [
        json!({"outcome": "ack"}),
        json!({"outcome": "retry", "error": "no"}),
        json!({"outcome": "retry", "delay": "1h"}),
        json!({"outcome": "snooze", "at": "2999-01-01T00:00:00Z"}),
        json!({"outcome": "release"}),
        json!({"outcome": "reject", "error": "never"}),
    ];
    let items: Vec<Value> = taken.iter().zip(&outcomes).map(|(it, how)| item(it, how)).collect();
    let settled = settle(&site, &items).await;
    let states: Vec<_> = settled.iter().map(|it| it["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["acked", "scheduled", "scheduled", "scheduled", "ready", "dead"]);
    assert!(settled.iter().all(|it| it["outcome"] == "settled"));
    let again = settle(&site, &items).await;
    assert!(again.iter().all(|it| it["outcome"] == "already_settled"), "{again:?}");
    assert_eq!((&again[0]["state"], &again[5]["state"]), (&json!("acked"), &json!("dead")));
    let Found::Live(dead) = orders.get("reject").await.unwrap() else { panic!("it is gone") };
    assert_eq!(dead.info.last_error.as_deref(), Some("never"));
    // The same lease with another outcome, one that another claim has ended, and none at all.
    let released = take(&site, 1).await;
    assert_eq!(released[0]["id"], "release");
    let token = &taken[4]["token"];
    let wrong = [
        item(&taken[0], &json!({"outcome": "reject"})),
        json!({"id": "release", "token": token, "outcome": "ack"}),
        json!({"id": "unknown", "token": token, "outcome": "ack"}),
    ];
    let wrong = settle(&site, &wrong).await;
    let wrong: Vec<_> = wrong.iter().map(|it| it["outcome"].clone()).collect();
    assert_eq!(wrong, ["missing", "stale", "missing"]);
    assert_eq!(orders.stats().await.unwrap().leased, 1);
}

#[tokio::test]
async fn a_settlement_holds_the_group() {
    let orders = orders().await;
    let site = site(&orders, Role::Worker);
    for (id, group) in [("a", "shop-1"), ("b", "shop-1"), ("c", "shop-2")] {
        let draft = orders.message(&id.into()).id(id).group(group);
        assert!(draft.send().await.unwrap().is_accepted());
    }
    let taken = take(&site, 1).await;
    let hold = json!({"outcome": "release", "hold_group": "1h"});
    let settled = settle(&site, &[item(&taken[0], &hold)]).await;
    assert_eq!(settled[0]["state"], "ready");
    let others = take(&site, 9).await;
    assert_eq!(others.iter().map(|it| &it["id"]).collect::<Vec<_>>(), ["c"]);
}

#[tokio::test]
async fn results_and_messages_that_follow_come_with_the_ack() {
    let orders = orders().await;
    let site = site(&orders, Role::Operator | Role::Worker);
    let draft = orders.message(&"x".into()).id("first").keep_result(Duration::from_secs(60));
    let draft = draft.group("shop-9");
    assert!(draft.send().await.unwrap().is_accepted());
    send(&orders, "second", "y").await;
    let taken = take(&site, 2).await;
    assert_eq!(
        (&taken[0]["keep_result"], &taken[1]["keep_result"]),
        (&json!("60000ms"), &json!(null))
    );
    assert_eq!((&taken[0]["group"], &taken[1]["group"]), (&json!("shop-9"), &json!(null)));
    let follow = json!([{"id": "third", "payload": {"n": 1}, "delay": "1h", "group": "t"},
        {"payload": 1}]);
    let with_result = json!({"outcome": "ack", "result": {"sum": 7}, "keep_result": "60000ms"});
    let items = [
        item(&taken[0], &with_result),
        item(&taken[1], &json!({"outcome": "ack", "messages": follow})),
    ];
    let settled = settle(&site, &items).await;
    assert_eq!(settled[0]["result_kept"], true);
    assert_eq!(settled[1]["messages"][0]["outcome"], "created");
    let Completion::Finished { result, .. } =
        orders.wait_for("first", Duration::ZERO).await.unwrap()
    else {
        panic!("it is not finished")
    };
    assert_eq!(result.unwrap(), r#"{"sum":7}"#);
    let Found::Live(third) = orders.get("third").await.unwrap() else { panic!("it is not there") };
    assert_eq!((&third.payload[..], third.info.group.unwrap().as_str()), (&br#"{"n":1}"#[..], "t"));
    // Repeated, nothing follows again.
    orders.cancel("third").await.unwrap();
    let again = settle(&site, &items).await;
    assert_eq!(again[1]["outcome"], "already_settled");
    assert_eq!(orders.get("third").await.unwrap(), Found::Finished(Status::Cancelled));
}

#[tokio::test]
async fn a_repeated_claim_returns_the_same_leases_to_the_same_visitor_only() {
    let orders = orders().await;
    let access = Access::credentials([
        Credential::bearer("one", "t1", Role::Worker),
        Credential::bearer("two", "t2", Role::Worker),
    ]);
    let site = Dashboard::new(access).queue(orders.clone()).router().unwrap();
    for number in 0..4 {
        send(&orders, &format!("m{number}"), "x").await;
    }
    let claim = async |token: &str, claim_id: &str| {
        let body = json!({"max": 2, "wait": "0s", "consumer": "c", "claim_id": claim_id});
        let headers = [JSON, ("authorization", &format!("Bearer {token}"))];
        let uri = "/api/v1/queues/orders/claim";
        let answer = ask(&site, "POST", uri, &headers, &body.to_string()).await;
        answer.status(200).json()["deliveries"].clone()
    };
    let first = claim("t1", "1").await;
    assert_eq!((&first[0]["id"], &first[1]["id"]), (&json!("m0"), &json!("m1")));
    let again = claim("t1", "1").await;
    assert_eq!(again[0]["token"], first[0]["token"]);
    assert_eq!(again.as_array().unwrap().len(), 2);
    // Who guesses the claim id of another one gets other messages.
    let stolen = claim("t2", "1").await;
    assert_eq!((&stolen[0]["id"], &stolen[1]["id"]), (&json!("m2"), &json!("m3")));
}

#[tokio::test]
async fn extensions_tell_of_cancels() {
    let orders = orders().await;
    let site = site(&orders, Role::Worker);
    send(&orders, "a", "x").await;
    send(&orders, "b", "x").await;
    let taken = take(&site, 2).await;
    orders.cancel("a").await.unwrap();
    let leases = json!([item(&taken[0], &json!({})), item(&taken[1], &json!({}))]);
    let body = json!({"leases": leases, "lease": "1h"});
    let extended = post(&site, "extend", &body).await.status(200).json();
    assert_eq!(extended["results"][0]["cancel_requested"], true);
    assert_eq!(extended["results"][1]["cancel_requested"], false);
    assert!(
        extended["results"][1]["deadline"].as_str().unwrap()
            > taken[1]["deadline"].as_str().unwrap()
    );
    settle(&site, &[item(&taken[1], &json!({"outcome": "ack"}))]).await;
    let extended = post(&site, "extend", &body).await.status(200).json();
    assert_eq!(extended["results"][1]["outcome"], "missing");
}

#[tokio::test]
async fn what_makes_no_sense_is_a_problem_and_nothing_is_done() {
    let orders = orders().await;
    let site = site(&orders, Role::Worker);
    send(&orders, "a", "x").await;
    for (body, why) in [
        (json!({"max": 1_000_000}), "1 to 1000"),
        (json!({"max": 0}), "1 to 1000"),
        (json!({"max": -1}), "1 to 1000"),
        (json!({"wait": "51s"}), "at most 50s"),
        (json!({"wait": "1000 days"}), "at most 50s"),
        (json!({"lease": "0s"}), "the lease in ms"),
        (json!({"lease": "2 days"}), "the lease in ms"),
        (json!({"claim_id": "x"}), "needs a consumer"),
        (json!({"claim_id": "", "consumer": "c"}), "1 to 64 bytes"),
        (json!({"consumer": "c".repeat(65)}), "65 bytes"),
        (json!({"queue": "x"}), "unknown member"),
        (json!([]), "a JSON object"),
    ] {
        let problem = post(&site, "claim", &body).await.status(400).json();
        assert!(problem["detail"].as_str().unwrap().contains(why), "{body}: {problem}");
    }
    for (call_of, body) in [
        ("claim", r#"{"max": 1, "max": 2}"#),
        ("settle", r#"{"settlements": [], "settlements": []}"#),
        ("settle", r#"{"settlements": [{"id": "a", "outcome": "ack", "outcome": "reject"}]}"#),
    ] {
        let problem = call(&site, "POST", &format!("/queues/orders/{call_of}"), body).await;
        problem.status(400).has("appears more than once");
    }
    assert_eq!(orders.stats().await.unwrap().totals.delivered(), 0);
    let taken = take(&site, 1).await;
    let (id, token) = (&taken[0]["id"], &taken[0]["token"]);
    let update = json!({"payload": 1, "id": "b", "update": "replace"});
    for (more, why) in [
        (json!({}), "outcome is"),
        (json!({"outcome": "done"}), "outcome is"),
        (json!({"outcome": "ack", "delay": "1s"}), "delay and at are for"),
        (json!({"outcome": "ack", "error": "x"}), "error is for"),
        (json!({"outcome": "snooze"}), "needs delay or at"),
        (json!({"outcome": "ack", "result": 1}), "needs keep_result"),
        (json!({"outcome": "reject", "result": 1, "keep_result": "1s"}), "for ack"),
        (json!({"outcome": "ack", "messages": [{}]}), "messages[0]: it has no payload"),
        (json!({"outcome": "ack", "token": "guess"}), "not one of a delivery"),
        (json!({"outcome": "ack", "id_base64": "/w=="}), "one of id and id_base64"),
        (json!({"outcome": "ack", "x": 1}), "unknown member"),
        (json!({"outcome": "reject", "error": "x".repeat(1_025)}), "1025 bytes"),
        (json!({"outcome": "ack", "result": "x".repeat(65_537), "keep_result": "1s"}), "65537"),
        (json!({"outcome": "ack", "result": 1, "keep_result": "8 days"}), "retention"),
        (
            json!({"outcome": "ack", "messages": [{"payload": 1, "max_failures": 0}]}),
            "max_failures",
        ),
        (json!({"outcome": "ack", "messages": [update]}), "must not be an update"),
        (json!({"outcome": "ack", "messages": [{"payload": 1, "id": "a"}]}), "more than once"),
    ] {
        // The answer says which of the settlements it is.
        let other = json!({"id": "other", "token": token, "outcome": "ack"});
        let body = json!({"settlements": [other, item(&taken[0], &more)]});
        let problem = post(&site, "settle", &body).await.status(400).json();
        let error = &problem["errors"][0];
        assert_eq!(error["index"], 1, "{more}: {problem}");
        assert!(error["detail"].as_str().unwrap().contains(why), "{more}: {problem}");
    }
    let ack = json!({"id": id, "token": token, "outcome": "ack"});
    for (settlements, why) in
        [(json!([]), "is empty"), (json!(vec![&ack; 1_001]), "1001 settlements")]
    {
        let body = json!({ "settlements": settlements });
        let problem = post(&site, "settle", &body).await.status(400).json();
        assert!(problem["detail"].as_str().unwrap().contains(why), "{problem}");
    }
    let leases = json!({"leases": vec![0; 1_001]});
    post(&site, "extend", &leases).await.status(400).has("there are 1001 leases");
    let huge = format!(r#"{{"settlements": "{}"}}"#, "x".repeat(9 * 1024 * 1024));
    call(&site, "POST", "/queues/orders/settle", &huge).await.status(413);
    call(&site, "POST", "/queues/nowhere/claim", "{}").await.status(404);
    assert_eq!(settle(&site, &[ack]).await[0]["state"], "acked");
}

/// Starts polls, and waits until they wait.
pub async fn polls(
    site: &Router,
    count: usize,
    counted: &Counted,
) -> Vec<tokio::task::JoinHandle<Value>> {
    let mut polls = Vec::new();
    for _ in 0..count {
        let site = site.clone();
        polls.push(tokio::spawn(async move { claim(&site, json!({"wait": "50s"})).await }));
    }
    while counted.waits.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    polls
}

#[tokio::test]
async fn polls_share_one_wait_and_one_is_woken_for_each_message() {
    let (counted, orders) = Counted::on(&orders().await);
    let site = site(&orders, Role::Worker);
    let waiting = polls(&site, 1, &counted).await;
    let asked = counted.count("claim");
    let waiting: Vec<_> = waiting.into_iter().chain(polls(&site, 500, &counted).await).collect();
    assert_eq!(counted.count("claim"), asked, "who joins does not ask the queue");
    assert_eq!(counted.most_waits.load(Ordering::SeqCst), 1);
    for number in 0..5 {
        send(&orders, &format!("m{number}"), "x").await;
    }
    // The first ones, in the order in which they came; the last claim finds nothing.
    let mut waiting = waiting.into_iter();
    for number in 0..5 {
        let claimed = waiting.next().unwrap().await.unwrap();
        assert_eq!(claimed["deliveries"][0]["id"], format!("m{number}"));
    }
    let waiting: Vec<_> = waiting.collect();
    assert!(waiting.iter().all(|poll| !poll.is_finished()));
    let woken = counted.count("claim") - asked;
    assert!((5..=10).contains(&woken), "{woken} claims for 5 messages");
    // The wait ends with the last poll.
    for poll in waiting {
        poll.abort();
        assert!(poll.await.is_err());
    }
    while counted.waits.load(Ordering::SeqCst) > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_empty_poll_ends_with_its_time() {
    let orders = orders().await;
    let site = site(&orders, Role::Worker);
    let begin = tokio::time::Instant::now();
    let empty = claim(&site, json!({"wait": "7s"})).await;
    assert_eq!((&empty["deliveries"], &empty["more"]), (&json!([]), &json!(false)));
    assert_eq!(begin.elapsed().as_secs(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_poll_whose_time_ends_during_a_claim_ends_with_it() {
    for (is_away, status) in [(false, 200), (true, 503)] {
        let (trouble, slow) = Trouble::holds_replies(&orders().await);
        let (counted, slow) = Counted::on(&slow);
        let site = site(&slow, Role::Worker);
        let poll = tokio::spawn(async move { post(&site, "claim", &json!({"wait": "7s"})).await });
        trouble.executed().await;
        trouble.release();
        tokio::time::sleep(Duration::from_secs(1)).await;
        // The next claim, after five seconds, fails for longer than the poll waits, or its reply
        // comes after that.
        counted.away.store(usize::from(is_away), Ordering::SeqCst);
        tokio::time::sleep(Duration::from_secs(7)).await;
        trouble.release();
        let answer = tokio::time::timeout(Duration::from_secs(60), poll).await;
        answer.expect("the poll goes on").unwrap().status(status);
    }
}

#[tokio::test(start_paused = true)]
async fn a_poll_hears_of_a_message_after_a_wait_that_ended_early() {
    let (counted, orders) = Counted::on(&orders().await);
    counted.early.store(1, Ordering::SeqCst);
    let site = site(&orders, Role::Worker);
    let begin = tokio::time::Instant::now();
    let poll = tokio::spawn(async move { claim(&site, json!({"wait": "50s"})).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    send(&orders, "a", "x").await;
    assert_eq!(poll.await.unwrap()["deliveries"][0]["id"], "a");
    assert_eq!(begin.elapsed().as_secs(), 1);
}

#[tokio::test]
async fn a_stop_answers_all_polls_at_once() {
    let (counted, orders) = Counted::on(&orders().await);
    let stop = CancellationToken::new();
    let dashboard = Dashboard::new(Access::everyone(Role::Worker)).queue(orders.clone());
    let site = dashboard.stop_on(stop.clone()).router().unwrap();
    let waiting = polls(&site, 50, &counted).await;
    let begin = Instant::now();
    stop.cancel();
    for poll in waiting {
        assert_eq!(poll.await.unwrap()["deliveries"], json!([]));
    }
    // Each would have waited for 50 s.
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    // A later one gets the ready messages, and does not wait.
    assert_eq!(claim(&site, json!({})).await["deliveries"], json!([]));
    send(&orders, "a", "x").await;
    assert_eq!(claim(&site, json!({})).await["deliveries"][0]["id"], "a");
}

#[tokio::test]
async fn a_client_that_goes_away_leaves_no_lease() {
    let (counted, orders) = Counted::on(&orders().await);
    let site = site(&orders, Role::Worker);
    // While it waits.
    for poll in polls(&site, 3, &counted).await {
        poll.abort();
        assert!(poll.await.is_err());
    }
    send(&orders, "a", "x").await;
    // Its answer is made, and never read.
    let request = Request::post("/api/v1/queues/orders/claim")
        .header("content-type", "application/json")
        .body(Body::from(r#"{"wait": "50s", "consumer": "c", "claim_id": "1"}"#));
    let response = site.clone().oneshot(request.unwrap()).await.unwrap();
    assert_eq!(orders.stats().await.unwrap().leased, 1);
    drop(response);
    // A repeated claim waits for the release, has nothing any more, and does not wait for long.
    let body = json!({"consumer": "c", "claim_id": "1", "wait": "50s"});
    let again = claim(&site, body).await;
    assert_eq!((&again["deliveries"], &again["more"]), (&json!([]), &json!(true)));
    let taken = take(&site, 2).await;
    assert_eq!(taken.len(), 1);
    assert_eq!(taken[0]["crashes"], 0);
    assert_eq!(
        settle(&site, &[item(&taken[0], &json!({"outcome": "ack"}))]).await[0]["state"],
        "acked"
    );
}

/// The queue grants the leases after the client has gone.
#[tokio::test]
async fn a_claim_outlives_its_client_and_gives_back_what_it_is_granted() {
    let inner = orders().await;
    let (trouble, slow) = Trouble::holds_replies(&inner);
    let site = site(&slow, Role::Worker);
    send(&inner, "a", "x").await;
    let poll = tokio::spawn(async move { claim(&site, json!({"wait": "50s"})).await });
    trouble.executed().await;
    assert_eq!(inner.stats().await.unwrap().leased, 1);
    poll.abort();
    assert!(poll.await.is_err());
    trouble.release();
    // The release is executed before its reply is held.
    let released = tokio::time::timeout(Duration::from_secs(60), trouble.executed());
    released.await.expect("nothing is released");
    let stats = inner.stats().await.unwrap();
    assert_eq!((stats.leased, stats.ready, stats.totals.released), (0, 1, 1));
}

#[tokio::test]
async fn a_lease_stays_if_one_of_two_requests_for_it_is_answered() {
    let orders = orders().await;
    let site = site(&orders, Role::Worker);
    send(&orders, "a", "x").await;
    let request = || {
        let body = r#"{"wait": "0s", "consumer": "c", "claim_id": "1"}"#;
        let request = Request::post("/api/v1/queues/orders/claim");
        let request = request.header("content-type", "application/json");
        site.clone().oneshot(request.body(Body::from(body)).unwrap())
    };
    let lost = request().await.unwrap();
    let read = claim(&site, json!({"wait": "0s", "consumer": "c", "claim_id": "1"})).await;
    drop(lost);
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    let ack = item(&read["deliveries"][0], &json!({"outcome": "ack"}));
    assert_eq!(settle(&site, &[ack]).await[0]["outcome"], "settled");
}

#[tokio::test(start_paused = true)]
async fn polls_outlast_a_server_that_is_away() {
    let (counted, orders) = Counted::on(&orders().await);
    let site = site(&orders, Role::Worker);
    let waiting = polls(&site, 20, &counted).await;
    counted.away.store(1, Ordering::SeqCst);
    // Longer than a call is repeated for.
    tokio::time::sleep(Duration::from_secs(15)).await;
    let late = {
        let site = site.clone();
        tokio::spawn(async move { post(&site, "claim", &json!({"wait": "5s"})).await })
    };
    assert_eq!(late.await.unwrap().status(503).json()["class"], "not_executed");
    assert!(waiting.iter().all(|poll| !poll.is_finished()));
    counted.away.store(0, Ordering::SeqCst);
    for number in 0..20 {
        send(&orders, &format!("m{number}"), "x").await;
    }
    let mut ids = BTreeMap::new();
    for poll in waiting {
        let claimed = poll.await.unwrap();
        *ids.entry(claimed["deliveries"][0]["id"].to_string()).or_insert(0) += 1;
    }
    assert_eq!((ids.len(), ids.values().max()), (20, Some(&1)));
}

#[tokio::test]
async fn a_queue_that_does_not_exist_yet_can_be_waited_on() {
    let connection = delayline::connect("memory:").await.unwrap();
    let access = Access::everyone(Role::Operator | Role::Worker);
    let site = Dashboard::new(access).discover(connection).router().unwrap();
    let waits = site.clone();
    let poll = tokio::spawn(async move { claim(&waits, json!({"wait": "50s"})).await });
    while !get(&site, "/api/v1/queues/orders").await.text().contains("\"ready\"") {
        let sent = call(&site, "POST", "/queues/orders/messages", r#"{"id": "a", "payload": 1}"#);
        sent.await;
    }
    assert_eq!(poll.await.unwrap()["deliveries"][0]["id"], "a");
}
