//! What Prometheus reads.

use std::collections::BTreeSet;
use std::time::Duration;

use delayline_web::{Access, Dashboard, Role};
use serde_json::Value;

use crate::support::{get, let_die, open, orders, send, send_later, site};

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
        r#"delayline_queue_delivered_total{queue="orders"} 1"#,
        r#"delayline_queue_died_total{queue="orders",reason="rejected"} 1"#,
        r#"delayline_queue_died_total{queue="orders",reason="expired"} 0"#,
        r#"delayline_queue_lateness_seconds_bucket{queue="orders",le="32.767"} 1"#,
        r#"delayline_queue_lateness_seconds_bucket{queue="orders",le="+Inf"} 1"#,
        r#"delayline_queue_lateness_seconds_count{queue="orders"} 1"#,
    ] {
        assert!(page.text().lines().any(|it| it == line), "{line}: {}", page.text());
    }
    // Each metric is told once, before its values.
    for (name, _) in page.text().lines().filter_map(|line| line.split_once('{')) {
        let name = name.strip_suffix("_bucket").unwrap_or(name);
        let name = name.strip_suffix("_count").unwrap_or(name);
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

const ALERTS: &str = include_str!("../../../../monitoring/alerts.yml");
const GRAFANA: &str = include_str!("../../../../monitoring/grafana/delayline.json");
const GUIDE: &str = include_str!("../../../../docs/guides/observe.md");
/// The names of the metrics of workers.
const METERS: &str = include_str!("../../../delayline/src/telemetry/meters.rs");
/// Say how an exporter makes histograms with buckets, and not summaries.
const BUCKETS: [&str; 2] = [
    include_str!("../../../../docs/guides/dashboard.md"),
    include_str!("../../../delayline/src/telemetry.rs"),
];

/// The words of a text that begin like a metric.
fn metrics(text: &str) -> BTreeSet<&str> {
    let word = |it: char| it.is_ascii_alphanumeric() || it == '_';
    text.split(|it| !word(it)).filter(|word| word.starts_with("delayline_")).collect()
}

#[tokio::test]
async fn alerts_and_dashboard_ask_for_metrics_that_exist() {
    let connection = delayline::connect("memory:").await.unwrap();
    open(&connection, "texts").await;
    let dashboard = Dashboard::new(Access::everyone(Role::Viewer)).queue(orders().await);
    let site = dashboard.discover(connection).router().unwrap();
    let page = get(&site, "/metrics").await.status(200);
    let heads = page.text().lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let exported: BTreeSet<&str> = heads.filter_map(|head| head.split(' ').next()).collect();
    let dashboard: Value = serde_json::from_str(GRAFANA).unwrap();
    let mut asked = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{panel}");
        for expr in targets.iter().map(|it| it["expr"].as_str().unwrap()) {
            let named = metrics(expr);
            // Several exporters may tell the same of a queue, and each tells of its own list.
            let of_list = !named.is_empty() && named.iter().all(|it| it.contains("_discovery_"));
            let once = expr.contains(if of_list { " by (instance)" } else { "max by (queue" });
            assert!(once || exported.is_disjoint(&named), "{expr}");
            asked.extend(named);
        }
    }
    asked.extend(metrics(ALERTS));
    for name in &asked {
        let meter = |name: &str| METERS.contains(&format!("{name:?}"));
        let call = |name: &str| format!("set_buckets_for_metric(Matcher::Full({name:?}");
        let known = match name.strip_suffix("_bucket") {
            None => exported.contains(name) || meter(name),
            Some(name) if exported.contains(name) => true,
            Some(name) => meter(name) && BUCKETS.iter().all(|text| text.contains(&call(name))),
        };
        assert!(known, "{name}");
    }
    // And nothing that is exported goes unseen.
    // A histogram is asked for by its buckets.
    let is_asked = |name: &str| asked.contains(name) || asked.contains(&*format!("{name}_bucket"));
    let unseen: Vec<_> = exported.iter().filter(|name| !is_asked(name)).collect();
    assert!(unseen.is_empty(), "{unseen:?}");
}

#[test]
fn every_alert_says_what_is_wrong() {
    let alerts: Vec<&str> = ALERTS.split("- alert: ").skip(1).collect();
    assert_eq!(alerts.len(), 10);
    for alert in alerts {
        for part in ["expr: ", "severity: ", "summary: ", "description: "] {
            assert_eq!(alert.matches(part).count(), 1, "{part} of {alert}");
        }
        let name = alert.lines().next().unwrap_or_default();
        assert!(GUIDE.contains(&format!("`{name}`")), "the guide says nothing of {name}");
        // A queue of the same name elsewhere has nothing to do with this one.
        assert!(!alert.contains("on (queue)") && !alert.contains("by (queue"), "{alert}");
    }
}
