//! Dead letters by reason and error, and the newest first.

use delayline_web::Role;

use crate::hostile::{HOSTILE, inert};
use crate::support::{Raws, finished, get, let_die, orders, post, reject_all, send, site};

/// Lets messages die of errors that differ in a number.
async fn die(queue: &Raws, count: usize, error: &str) {
    let word = error.split(' ').next().unwrap();
    for number in 0..count {
        send(queue, &format!("{word}-{number}"), "x").await;
    }
    let error = error.to_owned();
    reject_all(queue, move |job| {
        format!("{error}: {}", job.id().to_string().rsplit('-').next().unwrap())
    })
    .await;
}

#[tokio::test]
async fn letters_of_one_cause_are_one_group_with_one_action() {
    let orders = orders().await;
    die(&orders, 70, "no such customer").await;
    die(&orders, 30, "timed out").await;
    let site = site(&orders, Role::Admin);
    for order in ["", "&order=newest", "&order=oldest", "&order=largest"] {
        let page = get(&site, &format!("/groups?queue=orders{order}")).await.status(200);
        let page = page.has("no such customer: #").has(">70<").has("timed out: #").has(">30<");
        let first = page.text().find("no such customer: #") < page.text().find("timed out: #");
        assert_eq!(first, !matches!(order, "" | "&order=newest"), "{order}");
        page.lacks("are grouped here");
    }
    get(&site, "/groups?queue=orders&order=random").await.status(400);
    get(&site, "/groups?queue=absent").await.status(404);

    // The link and the form of a group are about its letters alone.
    let page = get(&site, "/groups?queue=orders").await.status(200);
    let page = page.has("queue=orders&amp;reason=rejected&amp;error_like=timed%20out%3A%20%23");
    let page = page.has(r#"name="reason" value="rejected""#);
    page.has(r##"name="error_like" value="timed out: #""##);

    let group = "reason=rejected&error_like=timed+out%3A+%23";
    let list = get(&site, &format!("/dead?queue=orders&{group}")).await.status(200);
    let list = list.has("Error like ").has("Redrive these 30").lacks("no such customer");
    let list = list.has(r#"<option value="rejected" selected>"#);
    assert_eq!(list.text().matches(" selected>").count(), 1, "{}", list.text());
    let filtered = "/dead?queue=orders&error=timed&died_after=2h";
    let list = get(&site, filtered).await.status(200);
    let list = list.has(r#"name="error" value="timed""#).has(r#"name="died_after" value="2h""#);
    list.has(r#"name="died_before" value="""#);
    let fields = format!("{group}&action=redrive");
    let page = post(&site, "/bulk?queue=orders", &fields).await.status(200);
    page.has("30 dead letters match.").has("<dt>Error like</dt><dd>timed out: #</dd>");
    post(&site, "/bulk?queue=orders", &format!("{fields}&sure=yes&rate=100000")).await.leads_to();
    while orders.stats().await.unwrap().dead > 70 {
        tokio::task::yield_now().await;
    }
    get(&site, "/groups?queue=orders").await.status(200).has(">70<").lacks("timed out");
    assert_eq!(orders.stats().await.unwrap().ready, 30);
}

#[tokio::test]
async fn viewers_see_groups_without_actions_and_redacted() {
    let orders = orders().await;
    die(&orders, 3, "card 4111 of anna").await;
    let page = get(&site(&orders, Role::Viewer), "/groups?queue=orders").await.status(200);
    page.has("card # of anna: #").lacks("method=\"post\"");
    let operator = get(&site(&orders, Role::Operator), "/groups?queue=orders").await.status(200);
    operator.has("Redrive...").lacks("Delete...");
    let access = delayline_web::Access::everyone(Role::Admin);
    let dashboard = delayline_web::Dashboard::new(access).queue(orders.clone());
    let dashboard = dashboard.redact(|_, message| message.info.last_error = None);
    let page = get(&dashboard.router().unwrap(), "/groups?queue=orders").await.status(200);
    page.has("(no error)").lacks("anna");
}

#[tokio::test]
async fn more_letters_than_a_page_groups_are_counted_by_a_job() {
    let orders = orders().await;
    die(&orders, 2_100, "no such customer").await;
    let site = site(&orders, Role::Operator);
    let page = get(&site, "/groups?queue=orders&order=oldest").await.status(200);
    page.has("The 2,000 letters that died first are grouped here; the queue has 2,100.");
    let page = get(&site, "/groups?queue=orders").await.status(200);
    page.has("letters that died last are grouped here; the queue has 2,100.");
    let next = post(&site, "/bulk?queue=orders", "action=count").await.leads_to();
    let page = finished(&site, &next).await.has("Count: finished");
    page.has("no such customer: #").has(">2,100<");
}

#[tokio::test]
async fn the_newest_letters_come_first_if_asked_for() {
    let orders = orders().await;
    die(&orders, 70, "first").await;
    die(&orders, 150, "second").await;
    let site = site(&orders, Role::Operator);
    let page = get(&site, "/dead?queue=orders&order=newest").await.status(200);
    let page = page.has("second-").lacks("first-");
    let mut seen = page.text().matches("Tick ").count();
    let mut page = page;
    while let Some((_, rest)) = page.text().split_once(r#"rel="next" href=""#) {
        let next = rest.split('"').next().unwrap().replace("&amp;", "&");
        assert!(next.contains("order=newest"), "{next}");
        page = get(&site, &format!("/{next}")).await.status(200);
        seen += page.text().matches("Tick ").count();
    }
    assert_eq!(seen, 220);
    page.has("first-");
    let page = get(&site, "/dead?queue=orders&order=newest&error=first").await.status(200);
    page.has("first-").lacks("second-");
    let future = "/dead?queue=orders&order=newest&died_after=2100-01-01T00:00Z";
    get(&site, future).await.status(200).has("None of the ");
    let past = "/dead?queue=orders&order=newest&died_before=2000-01-01T00:00Z";
    get(&site, past).await.status(200).has("None of the 0 ");
    get(&site, "/dead?queue=orders&order=largest").await.status(400);
    // A filter, and a question about all that match, keep the order.
    let hidden = r#"type="hidden" name="order" value="newest""#;
    get(&site, "/dead?queue=orders&order=newest").await.status(200).has(hidden);
    get(&site, "/dead?queue=orders").await.status(200).lacks(hidden);
    let fields = "action=redrive&error=first&order=newest";
    let asked = post(&site, "/bulk?queue=orders", fields).await.status(200).has(hidden);
    asked.has("dead?queue=orders&amp;error=first&amp;order=newest\">Back");
    // A button leads back to the same order.
    let fields = "scope=selected&id=first-3";
    let next = post(&site, "/redrive?queue=orders&order=newest", fields).await.leads_to();
    assert!(next.contains("order=newest"), "{next}");
}

#[tokio::test]
async fn hostile_errors_are_inert_in_groups_and_still_match() {
    for text in HOSTILE {
        let error = String::from_utf8_lossy(text).into_owned();
        let orders = orders().await;
        let_die(&orders, &["bad"], &error).await;
        let site = site(&orders, Role::Admin);
        let page = get(&site, "/groups?queue=orders").await.status(200);
        inert(&page);
        let (_, rest) = page.text().split_once("<td class=\"note\"").unwrap();
        let (_, rest) = rest.split_once("href=\"").unwrap();
        let link = rest.split('"').next().unwrap().replace("&amp;", "&");
        let list = get(&site, &format!("/{link}")).await.status(200).has("Tick bad");
        inert(&list);
    }
    let site = site(&orders().await, Role::Admin);
    for text in HOSTILE {
        let text: String = text.iter().map(|byte| format!("%{byte:02X}")).collect();
        for uri in [
            format!("/groups?queue=orders&order={text}"),
            format!("/groups?queue={text}"),
            format!("/dead?queue=orders&order={text}"),
            format!("/dead?queue=orders&error_like={text}"),
        ] {
            inert(&get(&site, &uri).await);
        }
    }
}
