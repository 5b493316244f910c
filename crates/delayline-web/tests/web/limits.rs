//! The forms that change the limits of a queue.

use delayline::Timestamp;
use delayline::admin::Limits;
use delayline_web::{Role, Router};
use serde_json::json;

use crate::hostile::inert;
use crate::support::{Raws, call, get, orders, post, site};
use crate::trouble::Trouble;

/// Sends a form, and checks that it says so.
async fn change(site: &Router, fields: &str) {
    let to = post(site, "/limits?queue=orders", fields).await.leads_to();
    get(site, &to).await.status(200).has("The limits have been changed.");
}

async fn limits(orders: &Raws) -> Limits {
    orders.stats().await.unwrap().limits
}

#[tokio::test]
async fn each_limit_is_set_and_cleared_on_its_own() {
    let orders = orders().await;
    let site = site(&orders, Role::Operator);
    let page = get(&site, "/queue?queue=orders").await.status(200);
    inert(&page);
    page.has("Maximum leased at once").lacks("Clear</button>");

    change(&site, "limit=leased&change=set&leased=3").await;
    change(&site, "limit=each_group&change=set&each_group=2").await;
    change(&site, "limit=in_order&change=set").await;
    change(&site, "limit=rate&change=set&count=10&per=1m&burst=2").await;
    change(&site, "limit=hold&change=set&when=30m").await;
    let set = limits(&orders).await;
    let rate = set.rate.unwrap();
    assert_eq!((set.leased, rate.count, rate.per().as_secs(), rate.burst), (Some(3), 10, 60, 2));
    assert_eq!((set.each_group, set.in_order, set.held_until.is_some()), (Some(2), true, true));
    let page = get(&site, "/queue?queue=orders").await.status(200);
    inert(&page);
    get(&site, "/queues").await.has("limited</a>").has("held</span>").has("queue=orders#limits");
    // The forms have what is set now, so that it can be sent as it is.
    let page = page.has(r#"name="leased" value="3""#).has(r#"name="per" value="60000 ms""#);
    let page = page.has(r#"name="each_group" value="2""#).has("At most 2 of each group leased");
    let page = page.has("In order: the messages of a group");
    assert_eq!(page.text().matches("Clear</button>").count(), 5);
    change(&site, "limit=rate&change=set&count=10&per=60000+ms&burst=2").await;

    let at = Timestamp::try_from(std::time::SystemTime::now()).unwrap();
    let at = Timestamp::from_ms(at.as_ms() + 86_400_000).unwrap();
    change(&site, &format!("limit=hold&change=set&when={at}")).await;
    assert_eq!(limits(&orders).await.held_until, Some(at));
    change(&site, "limit=hold&change=clear").await;
    assert_eq!(limits(&orders).await.held_until, None);
    assert_eq!(limits(&orders).await.leased, Some(3), "the others stay");
    // What a browser sends with the button, whatever the fields say.
    change(&site, "limit=leased&change=clear&leased=").await;
    change(&site, "limit=rate&change=clear&count=x&per=&burst=").await;
    get(&site, "/queues").await.has("limited</a>");
    change(&site, "limit=each_group&change=clear&each_group=").await;
    get(&site, "/queues").await.has("in order</a>").lacks("limited</a>");
    get(&site, "/queue?queue=orders").await.lacks("Handle in order</button>");
    change(&site, "limit=in_order&change=clear").await;
    get(&site, "/queues").await.lacks("in order</a>");
    get(&site, "/queue?queue=orders").await.has("Handle in order</button>");
    assert_eq!(limits(&orders).await, Limits::default());
}

#[tokio::test]
async fn senseless_limits_change_nothing() {
    let orders = orders().await;
    let site = site(&orders, Role::Operator);
    for fields in [
        "",
        "limit=leased&change=set",
        "limit=leased&change=set&leased=0",
        "limit=leased&change=set&leased=-1",
        "limit=leased&change=set&leased=1000001",
        "limit=leased&change=set&leased=99999999999",
        "limit=leased&change=explode&leased=1",
        "limit=each_group&change=set&each_group=0",
        "limit=in_order",
        "limit=none&change=set",
        "limit=rate&change=set&count=10&per=1m",
        "limit=rate&change=set&count=10&per=soon&burst=1",
        "limit=rate&change=set&count=10&per=1ms&burst=1",
        "limit=rate&change=set&count=1&per=1s&burst=2",
        "limit=hold&change=set&when=",
        "limit=hold&change=set&when=someday",
    ] {
        post(&site, "/limits?queue=orders", fields).await.status(400);
    }
    for wrong in [
        r#"{"leased": 0}"#,
        r#"{"leased": "3"}"#,
        r#"{"each_group": 0}"#,
        r#"{"in_order": null}"#,
        r#"{"rate": {"count": 10}}"#,
        r#"{"rate": {"count": 10, "per_ms": 1000, "per": 1}}"#,
        r#"{"create": 1}"#,
        r#"{"rate": {"count": 10, "per_ms": 1000, "burst": 11}}"#,
        r#"{"hold": 30}"#,
        r#"{"hold": "soon"}"#,
        r#"{"most": 3}"#,
    ] {
        call(&site, "POST", "/queues/orders/limits", wrong).await.status(400);
    }
    let large = call(&site, "POST", "/queues/orders/limits", r#"{"leased": 5000000000}"#).await;
    large.status(400).has("leased is 5000000000; it must be a whole number from 1 to 1000000");
    let beyond = call(&site, "POST", "/queues/orders/limits", r#"{"hold": "1000000h"}"#).await;
    beyond.status(400).has("3600000000000").has("3155760000000");
    post(&site, "/limits?queue=other", "limit=leased&change=set&leased=1").await.status(404);
    assert_eq!(limits(&orders).await, Limits::default());
}

#[tokio::test]
async fn limits_that_are_set_are_said_to_be_when_they_cannot_be_read() {
    let orders = orders().await;
    // The counts before the change, and the change.
    let site = site(&Trouble::refuses_after(2, &orders), Role::Operator);
    let changed = call(&site, "POST", "/queues/orders/limits", r#"{"leased": 3}"#).await;
    assert_eq!(changed.status(200).json(), json!({"queue": "orders", "changed": true}));
    assert_eq!(limits(&orders).await.leased, Some(3));
}
