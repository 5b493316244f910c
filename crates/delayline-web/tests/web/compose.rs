//! Messages that are sent, edited and found from pages.

use delayline::message::{Message, Status};
use delayline::{Bytes, Found};
use delayline_web::{Access, Dashboard, Role};

use crate::audit::Lines;
use crate::hostile::{HOSTILE, inert};
use crate::support::{Raws, get, let_die, open, orders, post, reject_all, send, send_later, site};

async fn message(queue: &Raws, id: &str) -> Message<Bytes> {
    match queue.get(id).await.unwrap() {
        Found::Live(message) => *message,
        other => panic!("{other:?}"),
    }
}

/// The value of a hidden field.
fn field(page: &str, name: &str) -> String {
    let (_, rest) = page.split_once(&format!("name=\"{name}\" value=\"")).unwrap();
    rest.split('"').next().unwrap().to_owned()
}

#[tokio::test]
async fn a_message_is_sent_once_with_all_that_its_form_has() {
    let orders = orders().await;
    let site = site(&orders, Role::Operator);
    let page = get(&site, "/send?queue=orders").await.status(200).has("Send a message");
    inert(&page);
    let id = field(page.text(), "id");
    let fields = format!(
        "id={id}&payload=%7B%22a%22%3A1%7D%0D%0A2&headers=kind%3A+mail%0D%0Aempty%3A%0D%0A&\
         priority=urgent&when=2h&when="
    );
    let next = post(&site, "/send?queue=orders", &fields).await.leads_to();
    get(&site, &next).await.status(200).has("Sent.");
    let sent = message(&orders, &id).await;
    assert_eq!(&sent.payload[..], b"{\"a\":1}\n2");
    assert_eq!(
        (sent.info.priority.name(), sent.info.state.status()),
        ("urgent", Status::Scheduled)
    );
    assert_eq!(sent.headers.get("kind").map(|it| &it[..]), Some(&b"mail"[..]));
    assert_eq!(sent.headers.get("empty").map(|it| &it[..]), Some(&b""[..]));
    assert_eq!(sent.info.group, None);
    let next = post(&site, "/send?queue=orders", "id=of-a-group&payload=x&group=+shop+9+").await;
    let page = get(&site, &next.leads_to()).await.status(200);
    page.has("Group</dt><dd>shop 9</dd>").has("the turn of its group, shop 9.");
    get(&site, "/messages?queue=orders&state=ready").await.status(200).has("group shop 9");
    orders.cancel("of-a-group").await.unwrap();
    // The delay of a repeated form does not count, its content does.
    let next = post(&site, "/send?queue=orders", &fields).await.leads_to();
    get(&site, &next).await.status(200).has("knows this message already");
    let next = post(&site, "/send?queue=orders", &format!("id={id}&payload=x")).await.leads_to();
    get(&site, &next).await.status(200).has("different content");
    for wrong in [
        "id=&payload=x",
        "payload=x",
        "id=a&payload=x&headers=none",
        "id=a&payload=x&headers=%3A+value",
        "id=a&payload=x&priority=first",
        "id=a&payload=x&priority=high&group=shop",
        "id=a&payload=x&when=25%3A00",
        "id=a&payload=x&when=101+years",
    ] {
        inert(&post(&site, "/send?queue=orders", wrong).await.status(400));
    }
    let long = format!("id=a&payload={}", "x".repeat(300 * 1024));
    post(&site, "/send?queue=orders", &long).await.status(413);
    post(&site, "/send?queue=gone", "id=a&payload=x").await.status(404);
    assert_eq!(orders.stats().await.unwrap().totals.enqueued, 2);
}

#[tokio::test]
async fn a_dead_letter_is_edited_and_redriven_once() {
    let orders = orders().await;
    let draft = orders.message(&Bytes::from_static(b"payload")).id("bad").group("shop-9");
    assert!(draft.send().await.unwrap().is_accepted());
    reject_all(&orders, |_| "no".to_owned()).await;
    let site = site(&orders, Role::Operator);
    let uri = "/edit?queue=orders&id=bad";
    get(&site, "/message?queue=orders&id=bad").await.status(200).has("Edit and redrive...");
    let page = get(&site, uri).await.status(200).has(">\npayload</textarea>");
    inert(&page);
    let of = field(page.text(), "of");
    let fields = format!("of={of}&payload=mended&headers=by%3A+anna&when=1h");
    let next = post(&site, uri, &fields).await.leads_to();
    get(&site, &next).await.status(200).has("Redriven with the new content.");
    let edited = message(&orders, "bad").await;
    assert_eq!((&edited.payload[..], edited.info.failures), (&b"mended"[..], 0));
    assert_eq!(edited.info.group.as_ref().unwrap().as_str(), "shop-9");
    assert_eq!(edited.headers.get("by").map(|it| &it[..]), Some(&b"anna"[..]));
    assert_eq!((edited.info.state.status(), edited.info.last_error), (Status::Scheduled, None));
    // A second click, and a form of a letter that has died again since.
    post(&site, uri, &fields).await.status(409).has("not a dead letter");
    orders.reschedule_in("bad", std::time::Duration::ZERO).await.unwrap();
    reject_all(&orders, |_| "no".to_owned()).await;
    post(&site, uri, &fields).await.status(409).has("has changed since");
    let of = field(get(&site, uri).await.status(200).text(), "of");
    for wrong in ["payload=x", "of=1-1-1&payload=x"] {
        post(&site, uri, wrong).await.status(409);
    }
    post(&site, uri, &format!("of={of}&payload=x&when=soon")).await.status(400);
    assert_eq!(&message(&orders, "bad").await.payload[..], b"mended");
}

#[tokio::test]
async fn an_edit_keeps_the_origin_that_it_does_not_show() {
    let (orders, origin) = (orders().await, r#"{"q":"secret","r":1}"#);
    let draft = orders.message(&Bytes::from_static(b"x")).id("bad").header("delayline-sqs", origin);
    assert!(draft.send().await.unwrap().is_accepted());
    reject_all(&orders, |_| "no".to_owned()).await;
    let visitor = delayline_web::Visitor::new("v", Role::Operator).only_queues(["orders"]);
    let access = Access::resolver(move |_| Some(visitor.clone()));
    let site = Dashboard::new(access).queue(orders.clone()).router().unwrap();
    let uri = "/edit?queue=orders&id=bad";
    let page =
        get(&site, uri).await.status(200).lacks("secret").has("delayline-sqs: {&quot;r&quot;");
    let fields =
        format!("of={}&payload=y&headers=delayline-sqs:{{\"r\":1}}", field(page.text(), "of"));
    post(&site, uri, &fields).await.leads_to();
    let edited = message(&orders, "bad").await;
    assert_eq!(edited.headers.get("delayline-sqs").unwrap(), origin);
    assert_eq!(&edited.payload[..], b"y");
}

#[tokio::test]
async fn what_a_form_cannot_carry_is_not_edited() {
    let most = delayline::limits::MAX_UPDATE_BYTES;
    for payload in [&b"\xff"[..], b"a\rb", b"\x1b[2J", &vec![b'x'; most + 1], &vec![b'x'; most]] {
        let orders = orders().await;
        send(&orders, "bad", payload.to_vec()).await;
        reject_all(&orders, |_| "no".to_owned()).await;
        let (site, uri) = (site(&orders, Role::Admin), "/edit?queue=orders&id=bad");
        let page = get(&site, uri).await.status(200);
        inert(&page);
        if payload.len() == most {
            let text = std::str::from_utf8(payload).unwrap();
            let fields = format!("of={}&payload={text}", field(page.text(), "of"));
            post(&site, uri, &fields).await.leads_to();
        } else {
            page.has("cannot be edited here").has("16384 bytes");
        }
    }
}

#[tokio::test]
async fn only_operators_who_see_contents_send_and_edit() {
    let orders = orders().await;
    let_die(&orders, &["bad"], "no").await;
    let viewer = site(&orders, Role::Viewer);
    get(&viewer, "/queue?queue=orders").await.status(200).lacks("Send a message");
    get(&viewer, "/message?queue=orders&id=bad").await.status(200).lacks("Edit and redrive");
    for uri in ["/send?queue=orders", "/edit?queue=orders&id=bad"] {
        get(&viewer, uri).await.status(403);
        post(&viewer, uri, "id=x&payload=x").await.status(403);
    }
    let access = Access::everyone(Role::Admin);
    let redacted = Dashboard::new(access).queue(orders.clone()).redact(|_, message| {
        message.payload = Bytes::new();
    });
    let redacted = redacted.router().unwrap();
    get(&redacted, "/message?queue=orders&id=bad").await.status(200).lacks("Edit and redrive");
    get(&redacted, "/edit?queue=orders&id=bad").await.status(400).has("redacted here");
    let strict = Dashboard::new(Access::everyone(Role::Operator)).queue(orders.clone());
    let strict = strict.contents_for(Role::Admin).router().unwrap();
    get(&strict, "/edit?queue=orders&id=bad").await.status(403);
    assert_eq!(orders.stats().await.unwrap().dead, 1);
}

#[tokio::test]
async fn sends_and_edits_are_audited_without_contents() {
    let lines = Lines::all();
    let orders = orders().await;
    let_die(&orders, &["bad"], "no").await;
    let visitor = delayline_web::Visitor::new("composer", Role::Operator);
    let access = Access::resolver(move |_| Some(visitor.clone()));
    let site = Dashboard::new(access).queue(orders).router().unwrap();
    post(&site, "/send?queue=orders", "id=new&payload=hunter2").await.leads_to();
    let of = field(get(&site, "/edit?queue=orders&id=bad").await.text(), "of");
    post(&site, "/edit?queue=orders&id=bad", &format!("of={of}&payload=hunter2")).await.leads_to();
    let text = lines.of("composer").join("\n");
    assert!(text.contains("action=\"send\"") && text.contains("action=\"edit_redrive\""), "{text}");
    assert!(text.contains("outcome=\"created\"") && !text.contains("hunter2"), "{text}");
}

#[tokio::test]
async fn an_id_is_found_over_all_queues() {
    let connection = delayline::connect("memory:").await.unwrap();
    let (orders, texts) = (open(&connection, "orders").await, open(&connection, "texts").await);
    send_later(&texts, "text-1", 60).await;
    send_later(&orders, "both", 60).await;
    send(&texts, "both", "x").await;
    texts.cancel("both").await.unwrap();
    let dashboard = Dashboard::new(Access::everyone(Role::Viewer)).queue(orders).queue(texts);
    let site = dashboard.router().unwrap();
    let page = get(&site, "/queue?queue=orders").await.status(200).has("Find an id");
    inert(&page);
    let to = get(&site, "/find?id=text-1").await.leads_to();
    assert_eq!(to, "/message?queue=texts&id=text-1");
    let page = get(&site, "/find?id=both").await.status(200);
    page.has("queue=orders&amp;id=both")
        .has("queue=texts&amp;id=both")
        .has(">cancelled<")
        .has(">scheduled<");
    get(&site, "/find?id=absent").await.status(200).has("None of 2 queues");
    get(&site, "/find?id=").await.status(400);
    get(&site, &format!("/find?id={}", "x".repeat(5_000))).await.status(400);
    for text in HOSTILE {
        let text: String = text.iter().map(|byte| format!("%{byte:02X}")).collect();
        inert(&get(&site, &format!("/find?id={text}")).await.status(200));
    }
}

#[tokio::test]
async fn the_picture_goes_back_a_day_and_a_month() {
    let orders = orders().await;
    let_die(&orders, &["a", "b"], "no").await;
    let site = site(&orders, Role::Viewer);
    for (span, words) in
        [("1h", "hour"), ("6h", "six hours"), ("24h", "24 hours"), ("31d", "31 days")]
    {
        let page = get(&site, &format!("/queue?queue=orders&span={span}")).await.status(200);
        let page = page.has(&format!("Last {words}: <strong>2</strong> delivered")).has("Waiting");
        inert(&page);
    }
    inert(&get(&site, "/queue?queue=orders&span=1y").await.status(400));
}
