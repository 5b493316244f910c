//! Times that visitors type and read, in their own zone.

use delayline::Timestamp;
use delayline_web::Role;

use crate::hostile::{HOSTILE, inert};
use crate::support::{Answer, ask, get, orders, post, send, send_later, site};

const BERLIN: &str = "a=b; delayline_zone=Europe%2FBerlin";

async fn get_with(site: &delayline_web::Router, uri: &str, cookie: &str) -> Answer {
    ask(site, "GET", uri, &[("cookie", cookie)], "").await
}

async fn due(queue: &crate::support::Raws, id: &str) -> Timestamp {
    match queue.get(id).await.unwrap() {
        delayline::Found::Live(message) => message.info.due,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn instants_are_in_the_zone_of_the_visitor_with_utc_beside() {
    let orders = orders().await;
    send_later(&orders, "order-1", 90).await;
    let at = std::time::SystemTime::from(Timestamp::from_ms(1_896_080_400_000).unwrap());
    orders.reschedule_at("order-1", at).await.unwrap();
    let site = site(&orders, Role::Operator);
    let uri = "/message?queue=orders&id=order-1";
    let page = get_with(&site, uri, BERLIN).await.status(200).has("in Europe/Berlin.");
    let page = page.has(">2030-01-31 10:00:00 CET</time>").has("2030-01-31 09:00:00.000 UTC<");
    inert(&page);
    let page = get(&site, uri).await.status(200).has("in UTC.");
    page.has(">2030-01-31 09:00:00.000 UTC</time>").lacks("CET");
    for wrong in ["delayline_zone=Nowhere/Land", "delayline_zone=%ff", "delayline_zone", "x=y"] {
        get_with(&site, uri, wrong).await.status(200).has("in UTC.");
    }
}

#[tokio::test]
async fn a_zone_is_chosen_once() {
    let orders = orders().await;
    let site = site(&orders, Role::Viewer);
    let answer = post(&site, "/zone", "zone=America%2FNew_York").await.status(303);
    let cookie = answer.header("set-cookie");
    assert!(cookie.starts_with("delayline_zone=America%2FNew_York; "), "{cookie}");
    assert_eq!(answer.header("location"), "queues?note=zone");
    let answer = post(&site, "/zone", "zone=UTC&back=dead%3Fqueue%3Dorders").await.status(303);
    assert_eq!(answer.header("location"), "dead?queue=orders&note=zone");
    get(&site, "/zone").await.status(200).has("value=\"UTC\"");
    let page = get_with(&site, "/queues?note=zone", cookie.split(';').next().unwrap()).await;
    page.status(200).has("in America/New_York.").has("from now on");
    let worker = crate::support::site(&orders, Role::Worker);
    post(&worker, "/zone", "zone=UTC").await.status(403).has("this needs the role viewer");
    for wrong in ["", "zone=", "zone=Nowhere", "zone=../../etc/passwd"] {
        inert(&post(&site, "/zone", wrong).await.status(400));
    }
    for text in HOSTILE {
        let text: String = text.iter().map(|byte| format!("%{byte:02X}")).collect();
        inert(&post(&site, "/zone", &format!("zone={text}")).await.status(400));
    }
}

#[tokio::test]
async fn a_message_is_due_at_a_time_of_day() {
    let orders = orders().await;
    send_later(&orders, "order-1", 90).await;
    let site = site(&orders, Role::Operator);
    let uri = "/reschedule?queue=orders&id=order-1";
    let day = 86_400_000;
    let tomorrow = async || {
        let now = orders.server_time().await.unwrap().as_ms();
        (now / day + 1) * day + 9 * 3_600_000
    };
    // Midnight may come between.
    let before = tomorrow().await;
    post(&site, uri, "when=tomorrow+09%3A00&when=").await.leads_to();
    let days = [before, tomorrow().await];
    assert!(days.contains(&due(&orders, "order-1").await.as_ms()));
    // What a picker sends stands in the second field.
    post(&site, uri, "when=&when=2030-01-31T09%3A00").await.leads_to();
    assert_eq!(due(&orders, "order-1").await.as_ms(), 1_896_080_400_000);
    let in_berlin = async |text: &str| {
        let form = ("content-type", "application/x-www-form-urlencoded");
        ask(&site, "POST", uri, &[("cookie", BERLIN), form], &format!("when={text}")).await
    };
    in_berlin("2030-01-31 09:00").await.leads_to();
    assert_eq!(due(&orders, "order-1").await.as_ms(), 1_896_076_800_000);
    in_berlin("2030-03-31 02:30").await.status(400).has("Europe/Berlin skips it");
    in_berlin("2030-10-27 02:30").await.status(400).has("twice");
    for wrong in ["", "25%3A00", "yesterday", "&when=", "2030-02-30", "36526d"] {
        post(&site, uri, &format!("when={wrong}")).await.status(400);
    }
    post(&site, uri, "").await.status(400);
    assert_eq!(due(&orders, "order-1").await.as_ms(), 1_896_076_800_000);
    post(&site, uri, "when=2030-01-31T09%3A00%3A00Z").await.leads_to();
    assert_eq!(due(&orders, "order-1").await.as_ms(), 1_896_080_400_000);
    let next = post(&site, uri, "when=0s").await.leads_to();
    get(&site, &next).await.status(200).has("Rescheduled.").has("waits for a free worker");
    assert_eq!(orders.stats().await.unwrap().ready, 1);
}

#[tokio::test]
async fn a_window_counts_and_lists_what_falls_due_in_it() {
    let orders = orders().await;
    send(&orders, "ready", "1").await;
    for n in 0..120_u64 {
        let priority = delayline::message::Priority::ALL[usize::try_from(n % 3).unwrap()];
        let draft = orders.message(&delayline::Bytes::from_static(b"x")).id(format!("m-{n:03}"));
        let at = Timestamp::from_ms(1_896_080_400_000 + n * 60_000).unwrap();
        let sent = draft.due_at(at.into()).priority(priority).send().await.unwrap();
        assert!(sent.is_accepted());
    }
    let site = site(&orders, Role::Viewer);
    let list = "/messages?queue=orders&state=scheduled";
    let window = "&from=2030-01-31T09:10:00Z&until=2030-01-31T10:10:00Z";
    let page = get(&site, &format!("{list}{window}")).await.status(200);
    let page = page.has("<strong>60</strong> due from").has("m-010").has("m-059");
    let page = page.lacks("m-009").lacks("m-060").lacks("About");
    let (_, rest) = page.text().split_once(r#"rel="next" href=""#).unwrap();
    let next = rest.split('"').next().unwrap().replace("&amp;", "&");
    let page = get(&site, &format!("/{next}")).await.status(200).has("m-060").has("m-069");
    page.lacks("m-059").lacks("m-070").lacks("rel=\"next\"");
    let page = get(&site, &format!("{list}&from=2030-01-31+10:50")).await.status(200);
    page.has("<strong>10</strong> due from").has("m-110").lacks("m-109");
    let page = get(&site, &format!("{list}&until=2100-01-01")).await.status(200);
    page.has("<strong>120</strong> due from").has("Ready now, and not listed here: 1.");
    get(&site, &format!("{list}&from=&until=&from=")).await.status(200).lacks(" due from");
    // A picked time counts, not what the form shows of the window before.
    let fields = "&from=2030-01-31T09:10:00Z&from=2030-01-31T10:50&until=2030-01-31T10:10:00Z\
                  &until=2030-01-31T10:55";
    get(&site, &format!("{list}{fields}")).await.status(200).has("<strong>5</strong> due from");
    let leased = "/messages?queue=orders&state=leased&from=1h";
    get(&site, leased).await.status(200).has("Leases that");
    get(&site, &format!("{leased}&until=2h")).await.status(400).has("for scheduled messages only");
    for (uri, why) in [
        ("&from=2030-01-31&until=2030-01-31", "the window ends at"),
        ("&from=2031-01-01&until=2030-01-01", "the window ends at"),
        ("&from=soon", "is not a time"),
        ("&until=3000-01-01", "it is more than 100 years from now"),
        ("&from=99999999999+days", "is not a"),
        ("&from=25:00", "is not a time"),
    ] {
        let page = get(&site, &format!("{list}{uri}")).await.status(400);
        inert(&page);
        assert!(page.text().contains(why), "{uri}: {}", page.text());
    }
    get(&site, "/messages?queue=orders&state=ready&from=1h").await.status(400);
    get(&site, "/messages?queue=gone&state=scheduled&from=1h").await.status(404);
    for text in HOSTILE {
        let text: String = text.iter().map(|byte| format!("%{byte:02X}")).collect();
        inert(&get(&site, &format!("{list}&from={text}&until={text}")).await.status(400));
    }
}
