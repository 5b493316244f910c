//! Dead letters that match: shown, counted, redriven and purged.

use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use delayline::{Bytes, Connect};
use delayline_test_server::Server;
use delayline_web::{Access, Dashboard, Role, Router, Visitor};
use serde_json::{Value, json};

use crate::audit::Lines;
use crate::support::{
    Answer, Raws, ask, call, ended, finished, get, let_die, open, orders, post, reject_all, site,
};
use crate::trouble::Trouble;

const JOBS: &str = "/queues/orders/dead/jobs";

/// Lets messages die of what their ids begin with.
async fn die(queue: &Raws, count: usize, reason: &str) {
    let ids: Vec<_> = (0..count).map(|number| format!("{reason}-{number}")).collect();
    let_die(queue, &ids, reason).await;
}

/// Starts a job; answers its path.
async fn start(site: &Router, order: &Value) -> String {
    let answer = call(site, "POST", JOBS, &order.to_string()).await.status(202);
    let to = answer.header("location");
    let id = to.strip_prefix("jobs/").unwrap();
    assert_eq!(answer.json()["id"], id);
    format!("{JOBS}/{id}")
}

#[tokio::test]
async fn letters_are_filtered() {
    let orders = orders().await;
    let_die(&orders, &["late-1", "late-2"], "the bank is down & out").await;
    die(&orders, 120, "no such shop").await;
    let site = site(&orders, Role::Viewer);
    get(&site, "/dead?queue=orders").await.status(200).has("late-1").has("Next page");
    let page = get(&site, "/dead?queue=orders&error=down+%26").await.status(200);
    page.has("late-1").has("late-2").lacks("no such").has(r#"value="down &amp;""#).lacks("Next");
    let page = get(&site, "/dead?queue=orders&reason=rejected&error=shop&died_after=1h").await;
    let page = page.status(200).has("no such shop-0<").lacks("late-1");
    let (_, rest) = page.text().split_once(r#"rel="next" href=""#).unwrap();
    let next = rest.split('"').next().unwrap().replace("&amp;", "&");
    get(&site, &format!("/{next}")).await.status(200).has("no such shop-119<").lacks("shop-0<");
    for none in [
        "reason=expired",
        "error=Shop",
        "died_before=1h",
        "died_after=2100-01-01T00:00Z",
        "died_after=tomorrow",
        // Of today.
        "died_before=midnight",
    ] {
        let page = get(&site, &format!("/dead?queue=orders&{none}")).await.status(200);
        page.has("None of the ").lacks("late-1");
    }
    // The buttons of the page act on the same letters later.
    let page = get(&site, "/dead?queue=orders&died_after=yesterday").await.status(200);
    page.has("late-1").lacks("yesterday\"").lacks("died_after=yesterday").has("T00:00:00.000Z\"");
    let long = "x".repeat(1_025);
    for wrong in ["reason=bad", "died_after=soon", "died_before=%ff1", &format!("error={long}")] {
        get(&site, &format!("/dead?queue=orders&{wrong}")).await.status(400);
    }
}

#[tokio::test]
async fn letters_of_one_group_are_chosen_exactly() {
    let orders = orders().await;
    for (id, group) in [("plain", "eu"), ("spaced", " eu"), ("broken", "e\nu")] {
        let draft = orders.message(&Bytes::from_static(b"x")).id(id).group(group);
        assert!(draft.send().await.unwrap().is_accepted());
    }
    reject_all(&orders, |_| "the bank is down".to_owned()).await;
    assert_eq!(orders.stats().await.unwrap().dead, 3);
    let site = site(&orders, Role::Operator);
    let page = get(&site, "/dead?queue=orders&group=eu").await.status(200);
    page.has("plain").lacks("spaced").lacks("broken").has(r#"name="group" value="eu""#);
    let page = get(&site, "/dead?queue=orders&group=+eu").await.status(200);
    page.has("spaced").lacks("plain").has(r#"name="group" value=" eu""#);
    let page = get(&site, "/dead?queue=orders&group=").await.status(200);
    page.has("plain").has("spaced").has("broken");
    // A field of a form would drop the line break, and choose the group eu.
    get(&site, "/dead?queue=orders&group=e%0Au").await.status(400).has("printable");
    get(&site, &format!("/dead?queue=orders&group={}", "x".repeat(129))).await.status(400);
    // The letters of a group are those of one error. An action on them keeps the other filters.
    let job = start(&site, &json!({"action": "count", "group": "eu"})).await;
    ended(&site, &job).await;
    let page = get(&site, "/job?queue=orders").await.status(200);
    page.has(r#"name="group" value="eu""#).has("down&amp;group=eu\">");
    let job = start(&site, &json!({"action": "redrive", "group": "e\nu"})).await;
    ended(&site, &job).await;
    let live = orders.stats().await.unwrap();
    assert_eq!((live.ready, live.dead), (1, 2));
}

#[tokio::test]
async fn those_that_match_are_counted_then_redriven() {
    let orders = orders().await;
    die(&orders, 1_200, "the bank is down").await;
    die(&orders, 300, "no such shop").await;
    let site = site(&orders, Role::Operator);
    let page = get(&site, "/dead?queue=orders&error=bank").await.status(200);
    page.has("Redrive all that match").has(r#"name="error" value="bank""#).lacks("Delete");
    let asked = post(&site, "/bulk?queue=orders", "action=redrive&error=bank").await.status(200);
    asked.has("Of the 1,000 that died first, 1,000 match. The queue has 1,500 dead letters;");
    let page = get(&site, "/dead?queue=orders&error=bank").await;
    page.has(r#"name="error" value="bank""#);
    get(&site, "/job?queue=orders").await.status(200).has("No job has run");
    let next = post(&site, "/bulk?queue=orders", "action=count&rate=1&error=bank").await.leads_to();
    let page = finished(&site, &next).await.has("Count: finished.").has("<dd>1,500</dd>");
    let page = page.has("<dt>Match</dt><dd>1,200</dd>").has("<dd>bank</dd>").lacks("Stop<");
    drop(page);
    assert_eq!(orders.stats().await.unwrap().dead, 1_500);
    let job = start(&site, &json!({"action": "redrive", "error": "bank", "delay": "1h"})).await;
    let told = ended(&site, &job).await;
    assert_eq!((&told["state"], &told["done"]), (&"finished".into(), &1_200.into()), "{told}");
    assert_eq!((&told["examined"], &told["not_done"]), (&1_500.into(), &0.into()), "{told}");
    let stats = orders.stats().await.unwrap();
    assert_eq!((stats.dead, stats.scheduled), (300, 1_200));
}

/// The fields that a browser sends with the button of this text, if the error is typed first.
fn sent_with(page: &str, button: &str, error: &str) -> (String, String) {
    let of = |tag: &str, name: &str| {
        let (_, rest) = tag.split_once(&format!(" {name}=\""))?;
        Some(rest.split_once('"')?.0.replace("&amp;", "&"))
    };
    let before = &page[..page.find(&format!(">{button}<")).unwrap()];
    let tag = before.rsplit_once('<').unwrap().1;
    let form = page[..before.len()].rsplit_once("<form").unwrap().1;
    let form = format!("{form}{}", page[before.len()..].split_once("</form>").unwrap().0);
    let to = of(tag, "formaction").or_else(|| of(&form, "action")).unwrap();
    let mut fields = vec![format!("{}={}", of(tag, "name").unwrap(), of(tag, "value").unwrap())];
    for input in form.split("<input").skip(1).map(|it| it.split('>').next().unwrap()) {
        let name = of(input, "name").unwrap();
        let is_typed = name == "error" && of(input, "type").is_none();
        let value =
            if is_typed { error.to_owned() } else { of(input, "value").unwrap_or_default() };
        fields.push(format!("{name}={value}"));
    }
    (format!("/{to}"), fields.join("&"))
}

#[tokio::test]
async fn a_filter_that_was_typed_and_not_sent_is_heeded() {
    let orders = orders().await;
    die(&orders, 3, "the bank is down").await;
    die(&orders, 5, "no such shop").await;
    let site = site(&orders, Role::Admin);
    let page = get(&site, "/dead?queue=orders").await.status(200);
    for (button, verb) in
        [("Redrive all that match...", "Redrive"), ("Delete all that match...", "Delete")]
    {
        let (to, fields) = sent_with(page.text(), button, "bank");
        let asked = post(&site, &to, &fields).await.status(200).has("<dd>bank</dd>");
        let asked = asked.has(&format!("{verb} all dead letters that match?"));
        drop(asked.has("3 dead letters match."));
        assert_eq!(orders.stats().await.unwrap().dead, 8, "{button}");
    }
    let (to, fields) = sent_with(page.text(), "Count all that match", "bank");
    let next = post(&site, &to, &fields).await.leads_to();
    finished(&site, &next).await.has("<dt>Match</dt><dd>3</dd>");
    // And so is what the page that asks says.
    let (to, fields) = sent_with(page.text(), "Redrive all that match...", "bank");
    let asked = post(&site, &to, &fields).await.status(200);
    let (_, fields) =
        sent_with(&asked.text().replace("<form ", "<form action=\"\" "), "Redrive", "");
    let next = post(&site, &to, &fields).await.leads_to();
    finished(&site, &next).await;
    let stats = orders.stats().await.unwrap();
    assert_eq!((stats.dead, stats.ready), (5, 3));
}

#[tokio::test(start_paused = true)]
async fn a_rate_is_kept_and_a_job_is_stopped() {
    let orders = orders().await;
    die(&orders, 100, "no").await;
    let site = site(&orders, Role::Operator);
    let begin = tokio::time::Instant::now();
    let next =
        post(&site, "/bulk?queue=orders", "action=redrive&sure=yes&rate=10").await.leads_to();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let dead = orders.stats().await.unwrap().dead;
    assert!((45..=55).contains(&dead), "{dead}");
    let page = get(&site, &next).await.status(200).has("Redrive: running.").has("At most 10 a");
    let page = page.has("data-live=\"live?job=1").has(">Stop<").has("Started by everyone");
    let (_, stop) = page.text().split_once("action=\"stop").unwrap();
    let stop = format!("/stop{}", stop.split('"').next().unwrap().replace("&amp;", "&"));
    // One at a time, and pages say so.
    post(&site, "/bulk?queue=orders", "action=count").await.status(409).has("another job");
    let order = r#"{"action": "count"}"#;
    let problem = call(&site, "POST", JOBS, order).await.status(409);
    assert_eq!(problem.header("content-type"), "application/problem+json");
    get(&site, "/dead?queue=orders").await.has("A job is running on these").lacks("Redrive all");
    post(&site, "/stop?queue=orders&id=another", "").await.status(404);
    post(&site, &stop, "").await.leads_to();
    tokio::time::sleep(Duration::from_secs(60)).await;
    get(&site, &next).await.status(200).has("Redrive: stopped.").lacks("data-live");
    let left = orders.stats().await.unwrap().dead;
    assert!(left >= dead - 1, "{left} of {dead}");
    // The rest, as a program does it.
    let job = start(&site, &json!({"action": "redrive", "rate": 10})).await;
    let told = ended(&site, &job).await;
    assert_eq!((&told["state"], &told["done"]), (&"finished".into(), &left.into()));
    assert!(begin.elapsed() >= Duration::from_secs(60 + left / 10));
    call(&site, "DELETE", &job, "").await.status(202).has("finished");
}

#[tokio::test]
async fn a_limit_is_kept_and_what_is_redriven_is_due_when_it_was_asked_for() {
    let orders = orders().await;
    die(&orders, 150, "the bank is down").await;
    die(&orders, 50, "no such shop").await;
    let site = site(&orders, Role::Admin);
    let fields = "action=redrive&sure=yes&error=bank&rate=&limit=120&when=1h";
    let next = post(&site, "/bulk?queue=orders", fields).await.leads_to();
    let page = finished(&site, &next).await.has("Redrive: finished.").has("Limit: 120");
    drop(page.has("Due 1 h after the redrive of each.").has("<dt>Done</dt><dd>120</dd>"));
    let stats = orders.stats().await.unwrap();
    assert_eq!((stats.dead, stats.scheduled, stats.ready), (80, 120, 0));
    // A count is of all.
    let next = post(&site, "/bulk?queue=orders", "action=count&limit=7&when=").await.leads_to();
    drop(finished(&site, &next).await.has("<dt>Match</dt><dd>80</dd>").lacks("in all"));
    // The oldest go first.
    let page = async || orders.dead_letters().await.unwrap().next_page().await.unwrap().unwrap();
    let before = page().await;
    let fields = "action=purge&sure=yes&limit=1";
    let next = post(&site, "/bulk?queue=orders", fields).await.leads_to();
    finished(&site, &next).await;
    assert_eq!(orders.stats().await.unwrap().dead, 79);
    assert_eq!(page().await[0].id, before[1].id);
    let job = start(&site, &json!({"action": "redrive", "limit": 30})).await;
    let told = ended(&site, &job).await;
    assert_eq!((&told["done"], &told["limit"]), (&30.into(), &30.into()), "{told}");
    let job = start(&site, &json!({"action": "count", "limit": 5})).await;
    assert_eq!(ended(&site, &job).await["matched"], 5);
    let stats = orders.stats().await.unwrap();
    assert_eq!((stats.dead, stats.ready), (49, 30));
}

/// Its queue never makes it wait.
#[tokio::test]
async fn a_job_leaves_time_for_other_tasks() {
    let orders = orders().await;
    die(&orders, 300, "no").await;
    let site = site(&orders, Role::Operator);
    let job = start(&site, &json!({"action": "redrive"})).await;
    tokio::task::yield_now().await;
    call(&site, "GET", &job, "").await.status(200).has("running");
    assert_eq!(ended(&site, &job).await["done"], 300);
}

#[tokio::test(start_paused = true)]
async fn open_pages_are_told_of_progress() {
    let orders = orders().await;
    die(&orders, 30, "no").await;
    let site = site(&orders, Role::Operator);
    start(&site, &json!({"action": "redrive", "rate": 1})).await;
    let page = get(&site, "/job?queue=orders").await.status(200);
    let (_, live) = page.text().split_once("data-live=\"").unwrap();
    let live = format!("/{}", live.split_once('"').unwrap().0.replace("&amp;", "&"));
    let response =
        tower::ServiceExt::oneshot(site.clone(), Request::get(live).body(Body::empty()).unwrap());
    let mut events = response.await.unwrap().into_body().into_data_stream();
    let begin = tokio::time::Instant::now();
    for _ in 0..3 {
        futures_util::StreamExt::next(&mut events).await.unwrap().unwrap();
    }
    assert!(begin.elapsed() <= Duration::from_secs(6), "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_job_ends_with_its_router() {
    let lines = Lines::all();
    let orders = orders().await;
    die(&orders, 20, "no").await;
    let access = Access::resolver(|_| Some(Visitor::new("dora", Role::Admin)));
    let site = Dashboard::new(access).queue(orders.clone()).router().unwrap();
    start(&site, &json!({"action": "purge", "rate": 1})).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    drop(site);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let left = orders.stats().await.unwrap().dead;
    assert!((13..=16).contains(&left), "{left}");
    let audit = lines.of("dora");
    assert_eq!(audit.len(), 2, "{audit:?}");
    assert!(audit[0].contains(r#"action="purge_matching""#) && audit[0].contains("started"));
    assert!(audit[1].contains("stopped, matched 20, done "), "{}", audit[1]);
}

#[tokio::test]
async fn roles_and_bad_input_are_refused() {
    let orders = orders().await;
    let_die(&orders, &["a", "b"], "no").await;
    let viewer = site(&orders, Role::Viewer);
    get(&viewer, "/dead?queue=orders").await.status(200).lacks("Count all").lacks("Redrive all");
    post(&viewer, "/bulk?queue=orders", "action=count").await.status(403);
    post(&viewer, "/stop?queue=orders&id=x", "").await.status(403);
    call(&viewer, "POST", JOBS, r#"{"action": "count"}"#).await.status(403);
    call(&viewer, "DELETE", &format!("{JOBS}/x"), "").await.status(403);
    let operator = site(&orders, Role::Operator);
    post(&operator, "/bulk?queue=orders", "action=purge&sure=yes").await.status(403);
    call(&operator, "POST", JOBS, r#"{"action": "purge"}"#).await.status(403);
    for wrong in [
        "{}",
        "[]",
        r#"{"action": "send"}"#,
        r#"{"action": 1}"#,
        r#"{"action": "count", "rate": 0}"#,
        r#"{"action": "count", "rate": 100001}"#,
        r#"{"action": "count", "rate": -1}"#,
        r#"{"action": "count", "rate": 1.5}"#,
        r#"{"action": "count", "rate": "5"}"#,
        r#"{"action": "count", "limit": 0}"#,
        r#"{"action": "redrive", "limit": 1000000001}"#,
        r#"{"action": "redrive", "limit": "5"}"#,
        r#"{"action": "redrive", "limit": 1.5}"#,
        r#"{"action": "count", "delay": "5m"}"#,
        r#"{"action": "redrive", "delay": "5m", "at": "2030-01-01T00:00Z"}"#,
        r#"{"action": "count", "reason": "bad"}"#,
        r#"{"action": "count", "reason": [1]}"#,
        r#"{"action": "redrive", "reason": []}"#,
        r#"{"action": "count", "error": 7}"#,
        r#"{"action": "count", "died_after": "soon"}"#,
        r#"{"action": "count", "ids": ["a"]}"#,
    ] {
        let answer = call(&operator, "POST", JOBS, wrong).await;
        assert_eq!(answer.status, 400, "{wrong}: {}", answer.text());
    }
    for wrong in [
        "",
        "action=x",
        "action=redrive&rate=0",
        "action=redrive&rate=x",
        "action=redrive&limit=0",
        "action=redrive&limit=-1",
        "action=redrive&when=soon",
        "action=count&when=1h",
        "reason=x",
    ] {
        post(&operator, "/bulk?queue=orders", wrong).await.status(400);
    }
    post(&operator, "/bulk?queue=absent", "action=count").await.status(404);
    for nowhere in ["x", "%00", "../x", "", "x/y"] {
        call(&operator, "GET", &format!("{JOBS}/{nowhere}"), "").await.status(404);
    }
    let admin = site(&orders, Role::Admin);
    post(&admin, "/bulk?queue=orders", "action=purge&sure=yes&when=1h").await.status(400);
    let heeds = |page: &Answer| {
        ["rate", "limit", "when"].map(|name| page.text().contains(&format!("name=\"{name}\"")))
    };
    let redrive = "action=redrive&error=n%22o&rate=7&limit=1200&when=1h";
    let page = post(&admin, "/bulk?queue=orders", redrive).await.status(200);
    assert_eq!(heeds(&page), [true; 3]);
    let page = page.has("Redrive all dead letters that match?").has("0 dead letters match.");
    drop(page.has(r#"name="when" value="1h""#).lacks("cannot be undone"));
    let asked = "action=purge&error=n%22o&rate=7&limit=1200";
    let page = post(&admin, "/bulk?queue=orders", asked).await.status(200).has("cannot be undone");
    assert_eq!(heeds(&page), [true, true, false]);
    let page = page.has(r#"name="error" value="n&quot;o""#).has(r#"name="rate" value="7""#);
    let page = page.has(r#"name="limit" value="1200""#).has("Delete all dead letters that match?");
    drop(page);
    let page = post(&admin, "/bulk?queue=orders", "action=purge").await.status(200);
    drop(page.has("Delete all dead letters?").has("The queue has 2 dead letters."));
    let page = post(&admin, "/bulk?queue=orders", "action=redrive&error=no").await.status(200);
    drop(page.has("2 dead letters match."));
    assert_eq!(orders.stats().await.unwrap().dead, 2);
    let told =
        ended(&admin, &start(&admin, &json!({"action": "purge", "error": "no"})).await).await;
    assert_eq!((&told["done"], orders.stats().await.unwrap().dead), (&2.into(), 0));
}

#[tokio::test]
async fn what_is_hidden_cannot_be_asked_for() {
    let orders = orders().await;
    let_die(&orders, &["a"], "card 4711 was refused").await;
    let dashboard = Dashboard::new(Access::everyone(Role::Operator)).queue(orders);
    let site = dashboard
        .redact(|_, message| message.info.last_error = Some("card (hidden) was refused".into()))
        .router()
        .unwrap();
    get(&site, "/dead?queue=orders&error=4711").await.status(200).has("None of the 1 ");
    get(&site, "/dead?queue=orders&error=hidden").await.status(200).has("was refused");
    for (text, matched) in [("4711", 0), ("refused", 1)] {
        let job = start(&site, &json!({"action": "count", "error": text})).await;
        assert_eq!(ended(&site, &job).await["matched"], matched, "{text}");
    }
}

#[tokio::test]
async fn a_job_that_fails_says_why() {
    let orders = orders().await;
    die(&orders, 250, "no").await;
    // Two calls to start with, and two pages.
    let site = site(&Trouble::refuses_after(4, &orders), Role::Operator);
    let job = start(&site, &json!({"action": "count"})).await;
    let told = ended(&site, &job).await;
    assert_eq!((&told["state"], &told["examined"]), (&"failed".into(), &200.into()), "{told}");
    assert!(told["failure"].as_str().unwrap().contains("access rules"), "{told}");
    let page = get(&site, "/job?queue=orders").await.status(200).has("Count: failed.");
    page.has("It has stopped: ").has("safely start it again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_goes_away_ends_the_job() {
    let server = Server::builder().append_only("always").start();
    let connection = Connect::new(&server.url()).unwrap().connect().await.unwrap();
    let orders = open(&connection, "orders").await;
    die(&orders, 20, "no").await;
    let site = site(&orders, Role::Operator);
    let job = start(&site, &json!({"action": "redrive", "rate": 2})).await;
    server.kill();
    let told = ended(&site, &job).await;
    assert_eq!(told["state"], "failed", "{told}");
    let away = call(&site, "POST", JOBS, r#"{"action": "count"}"#).await;
    assert!(away.status.is_server_error(), "{away:?}");
    server.restart();
    let again = async {
        loop {
            let order = r#"{"action": "redrive"}"#;
            if call(&site, "POST", JOBS, order).await.status == 202 {
                break;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), again).await.expect("it is back");
    let empty = async { while orders.stats().await.unwrap().dead > 0 {} };
    tokio::time::timeout(Duration::from_secs(60), empty).await.expect("all are redriven");
}

#[tokio::test]
async fn filters_are_inert() {
    let orders = orders().await;
    let_die(&orders, &["a"], "no").await;
    let site = site(&orders, Role::Admin);
    let hostile = "%22%3E%3Cscript%3Ealert(1)%3C/script%3E";
    // What cannot stand in a field.
    let steering = "x%1b[2J";
    get(&site, &format!("/dead?queue=orders&error={steering}")).await.status(400).lacks("\u{1b}");
    let order = json!({"action": "count", "error": "\u{1b}[2J<b>"});
    ended(&site, &start(&site, &order).await).await;
    get(&site, "/job?queue=orders").await.status(200).lacks("\u{1b}").lacks("<b>");
    get(&site, &format!("/dead?queue=orders&error={hostile}")).await.status(200).lacks("<script>a");
    let fields = format!("action=purge&error={hostile}");
    post(&site, "/bulk?queue=orders", &fields).await.status(200).lacks("<script>a").lacks("\u{1b}");
    let next = post(&site, "/bulk?queue=orders", &format!("{fields}&sure=yes")).await.leads_to();
    get(&site, &next).await.status(200).lacks("<script>a").lacks("\u{1b}");
    let (uri, forged) = ("/bulk?queue=orders", [("sec-fetch-site", "cross-site")]);
    ask(&site, "POST", uri, &forged, "action=redrive").await.status(403);
    assert_eq!(orders.stats().await.unwrap().dead, 1);
}
