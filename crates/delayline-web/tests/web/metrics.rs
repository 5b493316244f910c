//! What Prometheus reads.

use std::time::Duration;

use delayline_web::Role;

use crate::support::{get, let_die, orders, send, send_later, site};

#[tokio::test]
async fn metrics_have_the_counts_of_every_queue() {
    let orders = orders().await;
    let_die(&orders, &["bad-1"], "no").await;
    send(&orders, "order-1", "1").await;
    send_later(&orders, "order-2", 60).await;
    orders.cancel("order-2").await.unwrap();
    orders.pause().await.unwrap();
    let page = get(&site(&orders, Role::Viewer), "/metrics").await.status(200);
    assert!(page.header("content-type").starts_with("text/plain; version=0.0.4"));
    for line in [
        r#"delayline_queue_up{queue="orders"} 1"#,
        r#"delayline_messages{queue="orders",state="ready"} 1"#,
        r#"delayline_messages{queue="orders",state="dead"} 1"#,
        r#"delayline_paused{queue="orders"} 1"#,
        r#"delayline_queue_enqueued_total{queue="orders"} 3"#,
        r#"delayline_queue_cancelled_total{queue="orders"} 1"#,
    ] {
        assert!(page.text().lines().any(|it| it == line), "{line}: {}", page.text());
    }
    // Each metric is told once, before its values.
    for (name, _) in page.text().lines().filter_map(|line| line.split_once('{')) {
        let kind = format!("# TYPE {name} ");
        assert_eq!(page.text().matches(&kind).count(), 1, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_scrape_within_a_second_costs_nothing() {
    let orders = orders().await;
    let site = site(&orders, Role::Viewer);
    get(&site, "/metrics").await.status(200).has(r#"state="ready"} 0"#);
    send(&orders, "order-1", "1").await;
    let page = get(&site, "/metrics").await.status(200);
    page.has(r#"state="ready"} 0"#);
    tokio::time::advance(Duration::from_secs(1)).await;
    get(&site, "/metrics").await.status(200).has(r#"state="ready"} 1"#);
}
