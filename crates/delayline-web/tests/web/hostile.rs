//! Text that others wrote does nothing.

use delayline::{Bytes, MessageId};
use delayline_web::Role;
use serde_json::json;

use crate::support::{Answer, Raws, call, get, let_die, orders, post, site};

pub(crate) const HOSTILE: [&[u8]; 9] = [
    b"<script>alert(1)</script>",
    b"\"><img src=x onerror=alert(1)>",
    b"' onmouseover='alert(1)' style='x",
    b"<svg/onload=alert(1)>",
    b"javascript:alert(1)",
    b"\x1b[2J\x1b]0;title\x07\xc2\x9b31m",
    b"\xe2\x80\xae\xe2\x81\xa6gpj.exe",
    b"\xff\xfe\x00<b>",
    b"../../?queue=x&id=y#z%00%",
];

/// Elements and attributes that pages are made of.
const ELEMENTS: &str = "a body button circle code dd defs details div dl dt figcaption figure footer form \
                        h1 h2 head header html input label li line link main meta nav ol option p path \
                        pattern pre progress rect script section select span strong summary svg table \
                        tbody td text textarea th thead time title tr ul wbr !DOCTYPE";

/// Checks that a page has no element, attribute, or character that could do something.
#[track_caller]
pub(crate) fn inert(page: &Answer) {
    let text = page.text();
    let known: Vec<&str> = ELEMENTS.split_whitespace().collect();
    for (at, _) in text.match_indices('<') {
        let tag = text[at + 1..].split('>').next().unwrap();
        let name = tag.trim_start_matches('/').split([' ', '\n']).next().unwrap();
        assert!(known.contains(&name), "<{tag}>");
        // Quoted values are gone, so only names are left.
        let names: String = tag.split('"').step_by(2).collect();
        for attribute in names.split_whitespace().skip(1) {
            let attribute = attribute.trim_end_matches('=');
            assert!(!attribute.starts_with("on") && attribute != "style", "<{tag}>");
        }
        assert!(!tag.contains("javascript:") || !tag.contains("href=\"javascript"), "<{tag}>");
    }
    assert_eq!(text.matches("<script").count(), 1, "{text}");
    let steers = |it: char| it != '\n' && !delayline::backend::is_printable(it);
    assert!(!text.chars().any(steers), "{:?}", text.chars().find(|&it| steers(it)));
}

async fn send(queue: &Raws, id: &[u8], payload: &[u8]) {
    let id = MessageId::new(id.to_vec()).unwrap();
    let name = String::from_utf8_lossy(payload);
    let name: String = name.chars().take(60).collect();
    let payload = Bytes::copy_from_slice(payload);
    let draft =
        queue.message(&payload).id(id).header(name, payload.slice(..payload.len().min(200)));
    assert!(draft.send().await.unwrap().is_accepted());
}

fn percent(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("%{byte:02X}")).collect()
}

#[tokio::test]
async fn hostile_messages_are_inert_on_every_page() {
    let orders = orders().await;
    let site = site(&orders, Role::Admin);
    for text in HOSTILE {
        send(&orders, text, text).await;
        let id = percent(text);
        for form in ["", "&as=text", "&as=json", "&as=hex", "&as=<script>"] {
            let form = form.replace('<', "%3C").replace('>', "%3E");
            let page = get(&site, &format!("/message?queue=orders&id={id}{form}")).await;
            inert(&page.status(200));
        }
        inert(&post(&site, &format!("/cancel?queue=orders&id={id}"), "").await.status(200));
    }
    inert(&get(&site, "/messages?queue=orders&state=ready").await.status(200));
    // Each link on the page leads to its message.
    let list = get(&site, "/messages?queue=orders&state=ready").await;
    let links: Vec<String> = list
        .text()
        .split("href=\"")
        .filter(|rest| rest.starts_with("message?"))
        .map(|rest| rest.split('"').next().unwrap().replace("&amp;", "&"))
        .collect();
    assert_eq!(links.len(), HOSTILE.len());
    for link in links {
        get(&site, &format!("/{link}")).await.status(200).has("waits for a free worker.");
    }
}

#[tokio::test]
async fn hostile_errors_are_inert() {
    let empty = site(&orders().await, Role::Admin);
    for (n, text) in HOSTILE.iter().enumerate() {
        let id = format!("bad-{n}");
        let reason = String::from_utf8_lossy(text).into_owned();
        let fresh = orders().await;
        let_die(&fresh, &[&id], &reason).await;
        let site = site(&fresh, Role::Admin);
        inert(&get(&site, "/dead?queue=orders").await.status(200));
        inert(&get(&site, &format!("/message?queue=orders&id={id}")).await.status(200));
    }
    for text in HOSTILE {
        let text = percent(text);
        for uri in [
            format!("/queues?note={text}&done={text}"),
            format!("/queue?queue={text}"),
            format!("/messages?queue=orders&state={text}"),
            format!("/messages?queue=orders&after={text}"),
            format!("/check?queue=orders&after={text}"),
            format!("/message?queue=orders&id={text}"),
            format!("/{text}"),
        ] {
            inert(&get(&empty, &uri).await);
        }
        let fields = format!("when={text}&scope={text}&id={text}");
        inert(&post(&empty, "/reschedule?queue=orders&id=x", &fields).await.status(400));
        let fields = format!("scope=selected&id={text}&x={text}&{text}=1");
        inert(&post(&empty, "/purge?queue=orders", &fields).await);
    }
}

#[tokio::test]
async fn large_payloads_are_shown_in_part() {
    let orders = orders().await;
    let site = site(&orders, Role::Operator);
    for (id, byte) in [("text", b'<'), ("bytes", 0xff), ("brackets", b'[')] {
        send(&orders, id.as_bytes(), &vec![byte; 1 << 20]).await;
        for form in ["text", "json", "hex"] {
            let uri = format!("/message?queue=orders&id={id}&as={form}");
            let page = get(&site, &uri).await.status(200).has("of 1,048,576 bytes");
            inert(&page);
            assert!(page.body.len() < 200_000, "{id} {form}: {}", page.body.len());
        }
        let file = get(&site, &format!("/content?queue=orders&id={id}")).await.status(200);
        assert_eq!(file.body, vec![byte; 1 << 20]);
    }
}

#[tokio::test]
async fn no_answer_repeats_a_long_text() {
    let site = site(&orders().await, Role::Admin);
    let long = "\u{7f}".repeat(1 << 20);
    let zoned = format!("2030-01-01T00:00:00Z[{long}");
    let messages = "/queues/orders/messages";
    for text in [&long, &zoned] {
        for (path, body) in [
            (messages.to_owned(), json!({"payload": 1, "delay": text})),
            (messages.to_owned(), json!({"payload": 1, "at": text})),
            (messages.to_owned(), json!({"payload": 1, "expires_in": text})),
            (messages.to_owned(), json!({"payload": 1, "priority": text})),
            (messages.to_owned(), json!({"payload": 1, "id": text})),
            (messages.to_owned(), json!({"payload": 1, "headers": {text: text}})),
            (messages.to_owned(), json!({"payload": 1, text: 1})),
            (format!("{messages}/x/reschedule"), json!({"delay": text})),
            (format!("{messages}/x/reschedule"), json!({"at": text})),
        ] {
            let answer = call(&site, "POST", &path, &body.to_string()).await.status(400);
            assert!(answer.body.len() < 2_000, "{path}: {} bytes", answer.body.len());
        }
        let twice = format!(r#"{{"payload": 1, "{text}": 1, "{text}": 2}}"#).replace('\u{7f}', "x");
        let answer = call(&site, "POST", messages, &twice).await.status(400);
        assert!(answer.body.len() < 2_000, "{} bytes", answer.body.len());
        let field = percent(&text.as_bytes()[..80 * 1024]);
        let answer = post(&site, "/reschedule?queue=orders&id=x", &format!("when={field}")).await;
        let answer = answer.status(400).has("is not a");
        assert!(answer.body.len() < 10_000, "{} bytes", answer.body.len());
    }
}

#[tokio::test]
async fn large_forms_are_refused() {
    let site = site(&orders().await, Role::Admin);
    let fields = "x".repeat(300 * 1024);
    post(&site, "/redrive?queue=orders", &fields).await.status(413);
    let fields: String = (0..101).map(|n| format!("page={n}&")).collect();
    post(&site, "/redrive?queue=orders", &format!("{fields}scope=page")).await.status(400);
}
