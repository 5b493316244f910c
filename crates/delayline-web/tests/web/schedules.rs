//! Schedules: the page and the API, for each role, and bad input.

use std::time::{Duration, SystemTime};

use delayline::codec::Raw;
use delayline::message::Status;
use delayline::schedules::{Overlap, Schedules, Spec};
use delayline::{Bytes, Cancelled, Connection, Found, Queue, Worker};
use delayline_web::{Access, Dashboard, Role, Router, Visitor};
use serde_json::{Value, json};

use crate::audit::Lines;
use crate::hostile::inert;
use crate::support::{ask, call, get, open, post};

const HOUR: Duration = Duration::from_secs(3_600);

/// A dashboard of schedules and the queue `work`.
struct World {
    connection: Connection,
    schedules: Schedules,
    work: Queue<Bytes, Raw>,
}

impl World {
    async fn new() -> Self {
        Self::on("memory:").await
    }

    async fn on(url: &str) -> Self {
        let connection = delayline::connect(url).await.unwrap();
        let schedules = Schedules::open(&connection).await.unwrap();
        let work = open(&connection, "work").await;
        Self { connection, schedules, work }
    }

    fn dashboard(&self, access: Access) -> Dashboard {
        Dashboard::new(access).queue(self.work.clone()).schedules(self.schedules.clone())
    }

    fn site(&self, role: Role) -> Router {
        self.dashboard(Access::everyone(role)).router().unwrap()
    }

    async fn put(&self, name: &str, spec: &Spec) {
        self.schedules.put(name, spec).await.unwrap();
    }

    async fn names(&self) -> Vec<String> {
        self.schedules.list().await.unwrap().into_iter().map(|entry| entry.name).collect()
    }

    /// Acks all that is due in the target queue.
    async fn work_off(&self) {
        let worker = Worker::builder(self.work.clone()).until_empty(true).build().unwrap();
        worker.run(|_: delayline::Job<Bytes>| async { Ok::<_, std::io::Error>(()) }).await;
    }
}

fn hourly() -> Spec {
    Spec::every(HOUR, "work").unwrap().payload("hunter2").unwrap()
}

#[tokio::test]
async fn a_schedule_is_put_read_changed_paused_resumed_run_and_removed() {
    let world = World::new().await;
    let site = world.site(Role::Operator);
    let path = "/schedules/shop%2Freport";
    let body = r#"{"cron": "30 8 * * mon-fri", "zone": "Europe/Berlin", "queue": "work",
        "payload": {"x": 1}, "kind": "report", "group": "t", "lead": "5m", "grace": "2h"}"#;
    let put = call(&site, "PUT", path, body).await.status(201).json();
    assert_eq!((&put["outcome"], &put["name"]), (&json!("created"), &json!("shop/report")));
    assert_eq!(put["next"].as_array().unwrap().len(), 10);
    let again = call(&site, "PUT", path, body).await.status(200).json();
    assert_eq!(again["outcome"], "unchanged");

    let shown = call(&site, "GET", path, "").await.status(200).json();
    let spec = json!({"cron": "30 8 * * mon-fri", "zone": "Europe/Berlin", "queue": "work",
        "payload": {"x": 1}, "kind": "report", "group": "t", "lead_ms": 300_000,
        "grace_ms": 7_200_000});
    assert_eq!((&shown["spec"], &shown["paused"]), (&spec, &json!(false)));
    // Its latest instant was before it existed.
    assert_eq!((&shown["last"], &shown["overdue_seconds"]), (&Value::Null, &json!(0)));
    get(&site, "/schedules").await.status(200).has("none yet").lacks("overdue");
    // What is shown can be put.
    let same = call(&site, "PUT", path, &spec.to_string()).await.status(200).json();
    assert_eq!(same["outcome"], "unchanged");
    let other = call(&site, "PUT", path, r#"{"every": "90s", "queue": "work"}"#).await.status(200);
    assert_eq!(other.json()["spec"]["every_ms"], 90_000);

    let list = call(&site, "GET", "/schedules", "").await.status(200).json();
    assert_eq!((&list["complete"], &list["queue"]), (&json!(true), &json!("schedules")));
    assert_eq!(list["schedules"][0]["name"], "shop/report");

    for (verb, paused) in [("pause", true), ("pause", true), ("resume", false)] {
        call(&site, "POST", &format!("{path}/{verb}"), "").await.status(200);
        let shown = call(&site, "GET", path, "").await.json();
        assert_eq!(shown["paused"], paused, "{verb}");
        assert_eq!(shown["next"].as_array().unwrap().is_empty(), paused);
    }
    let sent = call(&site, "POST", &format!("{path}/run"), "").await.status(200).json();
    assert_eq!(sent["outcome"], "sent");
    let found = world.work.get(sent["id"].as_str().unwrap()).await.unwrap();
    assert!(matches!(found, Found::Live(message) if message.payload == "null"));

    let removed = call(&site, "DELETE", path, "").await.status(200).json();
    assert_eq!(removed, json!({"name": "shop/report", "outcome": "removed"}));
    assert!(world.names().await.is_empty());
    for (method, path) in [
        ("GET", "/schedules/shop%2Freport"),
        ("DELETE", "/schedules/shop%2Freport"),
        ("POST", "/schedules/shop%2Freport/pause"),
        ("POST", "/schedules/shop%2Freport/resume"),
        ("POST", "/schedules/shop%2Freport/run"),
    ] {
        let answer = call(&site, method, path, "").await.status(404);
        assert_eq!(answer.header("content-type"), "application/problem+json", "{method} {path}");
    }
}

#[tokio::test]
async fn each_change_leaves_a_line_in_the_audit_log() {
    let lines = Lines::all();
    let world = World::new().await;
    let access = Access::resolver(|_| Some(Visitor::new("hourglass", Role::Operator)));
    let site = world.dashboard(access).router().unwrap();
    let spec = r#"{"every": "1h", "queue": "work", "payload": "hunter2"}"#;
    call(&site, "PUT", "/schedules/report", spec).await.status(201);
    let both = format!(r#"{{"owner": "shop", "schedules": {{"a": {spec}, "b": {spec}}}}}"#);
    call(&site, "POST", "/schedules", &both).await.status(200);
    call(&site, "POST", "/schedules/report/run", "").await.status(200);
    call(&site, "DELETE", "/schedules/absent", "").await.status(404);
    let audit = lines.of("hourglass");
    let expected = [
        (r#"action="put schedule""#, r#"messages=0 id="report" outcome="created""#),
        (r#"action="declare schedules""#, r#"messages=2 id="shop" outcome="#),
        (r#"action="run schedule""#, r#"messages=0 id="report" outcome="sent""#),
        (r#"action="remove schedule""#, r#"messages=0 id="absent" outcome="not_found""#),
    ];
    assert_eq!(audit.len(), expected.len(), "{audit:?}");
    for (line, (action, rest)) in audit.iter().zip(expected) {
        assert!(line.contains(action) && line.contains(rest), "{line}");
        assert!(!line.contains("hunter2"), "{line}");
    }
}

#[tokio::test]
async fn what_became_of_the_last_instant_is_shown() {
    let world = World::new().await;
    let site = world.site(Role::Operator);
    let spec = Spec::every(HOUR, "work").unwrap().overlap(Overlap::Skip);
    world.put("sync", &spec).await;
    let path = "/schedules/sync";
    let run = async |status| call(&site, "POST", "/schedules/sync/run", "").await.status(status);
    let sent = run(200).await.json();
    // The message of a schedule that skips is there once.
    let refused = run(409).await.json();
    assert_eq!((&refused["id"], &refused["outcome"]), (&sent["id"], &json!("not_sent")));
    let shown = call(&site, "GET", path, "").await.json();
    assert_eq!((&shown["last"]["id"], &shown["last"]["state"]), (&sent["id"], &json!("ready")));
    get(&site, "/schedules").await.status(200).has("ready</span>");
    world.work_off().await;
    assert_eq!(call(&site, "GET", path, "").await.json()["last"]["state"], "acked");
    get(&site, "/schedules").await.status(200).has("acked</span>");
    run(200).await;
}

#[tokio::test]
async fn an_owner_declares_its_schedules() {
    let world = World::new().await;
    let site = world.site(Role::Operator);
    let declare = async |body: &str| call(&site, "POST", "/schedules", body).await;
    let both = r#"{"owner": "shop", "schedules": {
        "a": {"every": "1h", "queue": "work"}, "b": {"cron": "@daily", "queue": "work"}}}"#;
    let counts = |created: u64, changed: u64, unchanged: u64, removed: u64| {
        json!({"owner": "shop", "created": created, "changed": changed,
            "unchanged": unchanged, "removed": removed})
    };
    assert_eq!(declare(both).await.status(200).json(), counts(2, 0, 0, 0));
    assert_eq!(declare(both).await.status(200).json(), counts(0, 0, 2, 0));
    // One malformed schedule, and nothing of the list is done.
    let bad = both.replace("1h", "2h").replace("@daily", "0 0 31 2 *");
    declare(&bad).await.status(400).has("schedule b: ").has("no date");
    let one = r#"{"owner": "shop", "schedules": {"a": {"every": "1h", "queue": "work"}}}"#;
    assert_eq!(declare(one).await.status(200).json(), counts(0, 0, 1, 1));
    assert_eq!(world.names().await, ["shop/a"]);
    let none = r#"{"owner": "shop", "schedules": {}}"#;
    assert_eq!(declare(none).await.status(200).json(), counts(0, 0, 0, 1));
}

#[tokio::test]
async fn bad_schedules_are_refused_with_a_reason() {
    let world = World::new().await;
    let site = world.site(Role::Operator);
    for (body, reason) in [
        (r#"{"cron": "* * * * *", "zone": "Mars/Olympus", "queue": "work"}"#, "time zone"),
        (r#"{"cron": "* * *", "queue": "work"}"#, "3 fields"),
        (r#"{"every": "1h", "queue": "a b"}"#, "queue"),
        (r#"{"every": "1h"}"#, "queue"),
        (r#"{"every": "1h", "queue": "work", "leed": "1m"}"#, "unknown member"),
        (r#"{"every": "1h", "queue": "work", "lead": "2h"}"#, "lead"),
        (r#"{"every": "1h", "queue": "work", "grace": "40d"}"#, "grace"),
        (r#"{"every": "1h", "queue": "work", "overlap": "queue"}"#, "allow"),
        ("[]", "JSON object"),
        ("7", "JSON object"),
        ("{", "JSON object"),
        ("", "JSON object"),
    ] {
        let answer = call(&site, "PUT", "/schedules/a", body).await.status(400).has(reason);
        assert_eq!(answer.header("content-type"), "application/problem+json", "{body}");
    }
    let long =
        format!(r#"{{"every": "1h", "queue": "work", "payload": "{}"}}"#, "x".repeat(16_000));
    call(&site, "PUT", "/schedules/a", &long).await.status(400).has("15360").lacks("xxx");
    let good = r#"{"every": "1h", "queue": "work"}"#;
    for name in ["a%40b", &"x".repeat(101), &"x".repeat(2_000), "%FF"] {
        call(&site, "PUT", &format!("/schedules/{name}"), good).await.status(400);
    }
    for (body, reason) in [
        (r#"{"owner": "", "schedules": {}}"#, "the owner must have a name"),
        (r#"{"owner": "a", "schedules": {"": {"every": "1h", "queue": "work"}}}"#, "not empty"),
        (r#"{"owner": "a", "schedules": []}"#, "map"),
        (r#"{"owner": "a", "schedules": {"b@": {"every": "1h", "queue": "work"}}}"#, "@"),
        (r#"{"owner": "a", "schedules": {}, "more": 1}"#, "more"),
        ("[]", ""),
    ] {
        call(&site, "POST", "/schedules", body).await.status(400).has(reason);
    }
    let many: serde_json::Map<_, _> =
        (0..1_001).map(|n| (n.to_string(), json!({"every": "1h", "queue": "work"}))).collect();
    let many = json!({"owner": "a", "schedules": many}).to_string();
    call(&site, "POST", "/schedules", &many).await.status(400).has("at most 1000");
    let text = [("content-type", "text/plain")];
    ask(&site, "PUT", "/api/v1/schedules/a", &text, good).await.status(415);
    assert!(world.names().await.is_empty());
}

#[tokio::test]
async fn a_message_that_is_no_schedule_is_reported_and_hides_no_schedule() {
    let world = World::new().await;
    world.put("a", &hourly()).await;
    let raw = open(&world.connection, "schedules").await;
    crate::support::send(&raw, "foreign", "no schedule").await;
    let site = world.site(Role::Operator);
    let listed = call(&site, "GET", "/schedules", "").await.status(200).json();
    assert_eq!(
        (&listed["complete"], listed["schedules"].as_array().unwrap().len()),
        (&json!(true), 2)
    );
    assert!(listed["schedules"][0]["spec"].is_object(), "{listed}");
    assert_eq!(listed["schedules"][1]["name"], "foreign");
    assert_eq!(listed["schedules"][1]["spec"], json!(null));
    get(&site, "/schedules").await.status(200).has("every 3600 s").has("cannot read it");
    call(&site, "GET", "/schedules/a", "").await.status(200);
    let pause = call(&site, "POST", "/schedules/foreign/pause", "").await;
    pause.status(409).has("cannot read as a schedule");
    call(&site, "DELETE", "/schedules/foreign", "").await.status(200);
    assert_eq!(world.names().await, ["a"]);
}

#[tokio::test]
async fn a_message_that_no_scheduler_sends_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let world = World::on(&format!("file:{}", directory.path().display())).await;
    world.put("a", &hourly()).await;
    world.schedules.queue().reschedule_at("a", SystemTime::now() - HOUR).await.unwrap();
    let site = world.site(Role::Viewer);
    get(&site, "/schedules").await.status(200).has("A message has been overdue for ");
    let shown = call(&site, "GET", "/schedules/a", "").await.status(200).json();
    // The due time is a lead of a minute before the instant.
    assert!((3_540..3_600).contains(&shown["overdue_seconds"].as_u64().unwrap()), "{shown}");
    let metric = "delayline_schedules_overdue_seconds{queue=\"schedules\"} 35";
    let up = |up: u8| format!("delayline_queue_up{{queue=\"schedules\"}} {up}\n");
    let paused = "delayline_paused{queue=\"schedules\"} 0\n";
    get(&site, "/metrics").await.has(metric).has(&up(1)).has(paused);
    // While the queue cannot be read, the series have no gap.
    world.connection.close().await.unwrap();
    get(&site, "/metrics").await.has(metric).has(paused);
    get(&world.site(Role::Viewer), "/metrics").await.has(&up(0));
}

#[tokio::test]
async fn viewers_look_without_payloads_and_change_nothing() {
    let world = World::new().await;
    world.put("a", &hourly()).await;
    let site = world.site(Role::Viewer);
    get(&site, "/schedules").await.status(200).has("every 3600 s").lacks(r#"method="post""#);
    for path in ["/schedules", "/schedules/a"] {
        call(&site, "GET", path, "").await.status(200).lacks("hunter2").lacks("payload");
    }
    let body = r#"{"every": "2h", "queue": "work"}"#;
    for (method, path, body) in [
        ("PUT", "/schedules/a", body),
        ("DELETE", "/schedules/a", ""),
        ("POST", "/schedules/a/pause", ""),
        ("POST", "/schedules/a/resume", ""),
        ("POST", "/schedules/a/run", ""),
        ("POST", "/schedules", r#"{"owner": "a", "schedules": {}}"#),
    ] {
        call(&site, method, path, body).await.status(403).has("nothing was done");
    }
    for act in ["pause", "resume", "run", "remove"] {
        let fields = format!("act={act}&sure=yes");
        post(&site, "/schedule?name=a", &fields).await.status(403);
    }
    let entry = world.schedules.get("a").await.unwrap().unwrap();
    assert!(entry.spec == Some(hourly()) && !entry.is_paused);
    assert_eq!(world.work.stats().await.unwrap().totals.enqueued, 0);

    let dashboard = world.dashboard(Access::everyone(Role::Admin)).redact(|_, _| {});
    let redacting = dashboard.router().unwrap();
    call(&redacting, "GET", "/schedules/a", "").await.status(200).lacks("hunter2");
    let operator = world.site(Role::Operator);
    call(&operator, "GET", "/schedules/a", "").await.status(200).has("hunter2");
}

#[tokio::test]
async fn schedules_exist_only_for_visitors_of_their_queue() {
    let world = World::new().await;
    world.put("a", &hourly()).await;
    for (queue, status) in [("work", 404), ("schedules", 200)] {
        let access = Access::resolver(move |_| {
            Some(Visitor::new("anna", Role::Operator).only_queues([queue]))
        });
        let site = world.dashboard(access).router().unwrap();
        for path in ["/schedules", "/api/v1/schedules", "/api/v1/schedules/a"] {
            get(&site, path).await.status(status);
        }
        call(&site, "POST", "/schedules/a/run", "").await.status(status);
        let has_link = get(&site, "/queues").await.text().contains(r#"href="schedules""#);
        assert_eq!(has_link, status == 200);
    }
    let without = Dashboard::new(Access::everyone(Role::Admin)).router().unwrap();
    call(&without, "GET", "/schedules", "").await.status(404).has("no schedules here");
    get(&without, "/schedules").await.status(404);
}

#[tokio::test]
async fn buttons_pause_resume_run_and_remove_after_a_question() {
    let world = World::new().await;
    world.put("shop/a", &hourly()).await;
    let site = world.site(Role::Operator);
    let page = get(&site, "/schedules").await.status(200);
    page.has("shop/a").has("queue?queue=work").has("Pause</button>").lacks("hunter2");
    let uri = "/schedule?name=shop%2Fa";
    let press = async |fields: &str| post(&site, uri, fields).await.leads_to();
    let to = press("act=pause").await;
    get(&site, &to).await.status(200).has("The schedule is paused").has("Resume</button>");
    assert!(world.schedules.get("shop/a").await.unwrap().unwrap().is_paused);
    let to = press("act=resume").await;
    get(&site, &to).await.has("The schedule is resumed");
    let to = press("act=run").await;
    get(&site, &to).await.has("has been sent");
    assert_eq!(world.work.stats().await.unwrap().ready, 1);
    post(&site, uri, "act=remove").await.status(200).has("Remove shop/a?").has("sure");
    assert_eq!(world.names().await, ["shop/a"]);
    let to = press("act=remove&sure=yes").await;
    get(&site, &to).await.has("The schedule is removed").has("no schedules here");
    for act in ["pause", "resume", "run", "remove&sure=yes"] {
        let to = press(&format!("act={act}")).await;
        get(&site, &to).await.has("the schedule no longer exists");
    }
    for (uri, fields) in [(uri, "act=explode"), (uri, ""), ("/schedule", "act=pause")] {
        post(&site, uri, fields).await.status(400);
    }
}

#[tokio::test]
async fn a_space_at_the_end_makes_another_name() {
    let world = World::new().await;
    for name in ["report", "report "] {
        world.put(name, &hourly()).await;
    }
    let site = world.site(Role::Operator);
    let page = get(&site, "/schedules").await.has("schedule?name=report%20\"");
    drop(page);
    post(&site, "/schedule?name=report%20", "act=remove&sure=yes").await.leads_to();
    assert_eq!(world.names().await, ["report"]);
    world.put("report ", &hourly()).await;
    get(&site, "/schedules?after=report").await.has("name=report%20\"");
    get(&site, "/schedules?after=report%20").await.lacks("name=report");
}

#[tokio::test]
async fn hostile_names_are_text_on_the_page() {
    let world = World::new().await;
    let name = "\"><script>alert(1)</script>\u{1b}[2J\u{202e}";
    world.put(name, &hourly()).await;
    let site = world.site(Role::Operator);
    let page = get(&site, "/schedules").await.status(200).has("&lt;script&gt;");
    inert(&page);
    let encoded: String = name.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let uri = format!("/schedule?name={encoded}");
    inert(&post(&site, &uri, "act=remove").await.status(200));
    post(&site, &uri, "act=remove&sure=yes").await.leads_to();
    assert!(world.names().await.is_empty());
}

#[tokio::test]
async fn more_schedules_than_a_page_shows_are_on_the_next_one() {
    let world = World::new().await;
    let all = (0..101).map(|n| (format!("s{n:03}"), hourly()));
    world.schedules.declare("o", all).await.unwrap();
    let site = world.site(Role::Viewer);
    let first = get(&site, "/schedules").await.status(200);
    let first = first.has("<wbr>s099<").lacks("<wbr>s100<").has("schedules?after=o%2Fs099");
    assert_eq!(first.text().matches("<tr>").count(), 101, "and the head");
    get(&site, "/schedules?after=o%2Fs099")
        .await
        .has("<wbr>s100<")
        .lacks("<wbr>s099<")
        .lacks("More");
}

#[tokio::test]
async fn a_message_that_a_change_has_cancelled_shows_its_successor() {
    let world = World::new().await;
    let spec = hourly();
    world.put("a", &spec).await;
    let hour = 3_600_000;
    let now = delayline::Timestamp::try_from(SystemTime::now()).unwrap().as_ms();
    let last = format!("a@{}", now / hour * hour);
    for id in [last.clone(), format!("{last}.1")] {
        crate::support::send(&world.work, &id, "1").await;
    }
    assert_eq!(world.work.cancel(last.as_str()).await.unwrap(), Cancelled::Cancelled);
    let list = world.schedules.list().await.unwrap();
    let found = world.schedules.last_ticks(&list).await.unwrap().remove(0).unwrap();
    assert_eq!((found.id, found.status), (format!("{last}.1"), Some(Status::Ready)));
}
