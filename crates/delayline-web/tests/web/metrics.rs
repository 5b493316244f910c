//! What Prometheus reads.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use delayline::admin::{Rate, SetLimits};
use delayline::schedules::Schedules;
use delayline_web::{Access, Dashboard, Role};
use serde_json::Value;
use tokio::time::Instant;

use crate::promql::{Named, named};
use crate::support::{Answer, Raws, get, let_die, open, orders, send, send_later, site};
use crate::trouble::Trouble;

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
    // Each metric is declared once, before its values.
    for (name, _) in page.text().lines().filter_map(|line| line.split_once('{')) {
        let name = name.strip_suffix("_bucket").unwrap_or(name);
        let name = name.strip_suffix("_count").unwrap_or(name);
        let kind = format!("# TYPE {name} ");
        assert_eq!(page.text().matches(&kind).count(), 1, "{name}");
    }
}

#[tokio::test]
async fn limits_are_gauges_of_the_queues_that_have_them() {
    let orders = orders().await;
    let site = site(&orders, Role::Viewer);
    let lines = |page: &str| {
        let limits = page.lines().filter(|it| it.starts_with("delayline_limit"));
        limits.map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(lines(get(&site, "/metrics").await.status(200).text()).is_empty());
    let limits = SetLimits::new().leased(3).each_group(2).rate(Rate::per_minute(90, 5));
    orders.set_limits(limits.hold_for(Duration::from_secs(60))).await.unwrap();
    // The counts of the page before are a second old at most.
    let site = crate::support::site(&orders, Role::Viewer);
    let page = get(&site, "/metrics").await.status(200).has(r#"delayline_held{queue="orders"} 1"#);
    assert_eq!(
        lines(page.text()),
        [
            r#"delayline_limit_leased{queue="orders"} 3"#,
            r#"delayline_limit_each_group{queue="orders"} 2"#,
            r#"delayline_limit_rate_per_second{queue="orders"} 1.5"#,
            r#"delayline_limit_burst{queue="orders"} 5"#,
        ]
    );
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

/// The value of a metric of the queue `orders`.
#[track_caller]
fn value(page: &Answer, metric: &str) -> Option<f64> {
    let start = format!("{metric}{{queue=\"orders\"");
    let line = page.text().lines().find(|line| line.starts_with(&start))?;
    Some(line.rsplit_once(' ').unwrap().1.parse().unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_cannot_be_counted_keeps_its_last_counts_with_their_age() {
    let orders = orders().await;
    send(&orders, "order-1", "1").await;
    let site = site(&Trouble::refuses_after(1, &orders), Role::Viewer);
    let scrape = async || get(&site, "/metrics").await.status(200);
    let before = scrape().await;
    assert_eq!(value(&before, "delayline_queue_up"), Some(1.0));
    assert_eq!(value(&before, "delayline_queue_count_age_seconds"), Some(0.0));
    tokio::time::advance(Duration::from_secs(90)).await;
    let after = scrape().await;
    assert_eq!(value(&after, "delayline_queue_up"), Some(0.0));
    assert_eq!(value(&after, "delayline_queue_count_age_seconds"), Some(90.0));
    // Due messages wait, and no series has a gap.
    let oldest = "delayline_oldest_due_age_seconds";
    let waited = value(&after, oldest).unwrap() - value(&before, oldest).unwrap();
    assert!((89.9..=90.1).contains(&waited), "{waited}");
    assert_eq!(exported(after.text()), exported(before.text()));
    drop(after.has(r#"delayline_messages{queue="orders",state="ready"} 1"#));
    get(&site, "/health").await.status(503);
}

#[tokio::test(start_paused = true)]
async fn a_frozen_server_does_not_hold_a_scrape() {
    let orders = orders().await;
    send(&orders, "order-1", "1").await;
    let (trouble, slow) = Trouble::holds_replies(&orders);
    let site = site(&slow, Role::Viewer);
    let begin = Instant::now();
    let page = get(&site, "/metrics").await.status(200);
    assert!(begin.elapsed() <= Duration::from_secs(2), "{:?}", begin.elapsed());
    // It was never counted: only that is known, and since when.
    assert_eq!(value(&page, "delayline_queue_up"), Some(0.0));
    assert!(value(&page, "delayline_queue_count_age_seconds").unwrap() >= 1.0);
    assert_eq!(value(&page, "delayline_messages"), None);
    get(&site, "/health").await.status(503);
    for _ in 0..3 {
        trouble.release();
    }
    let page = get(&site, "/metrics").await.status(200);
    assert_eq!(value(&page, "delayline_queue_up"), Some(1.0));
}

#[tokio::test(start_paused = true)]
async fn one_broken_queue_makes_a_site_unhealthy_and_leaves_it_ready() {
    let connection = delayline::connect("memory:").await.unwrap();
    let (orders, texts) = (open(&connection, "orders").await, open(&connection, "texts").await);
    let broken = Trouble::refuses_after(0, &texts);
    let (_trouble, frozen) = Trouble::holds_replies(&open(&connection, "calls").await);
    // Neither needs a login.
    let site = |queues: Vec<Raws>| {
        let dashboard = Dashboard::new(Access::credentials([]));
        queues.into_iter().fold(dashboard, Dashboard::queue)
    };
    let some = site(vec![orders, broken.clone(), frozen.clone()]).router().unwrap();
    get(&some, "/ready").await.status(200);
    get(&some, "/health").await.status(503);
    let none = site(vec![broken, frozen]).router().unwrap();
    get(&none, "/ready").await.status(503).has("no queue can be reached");
    get(&none, "/health").await.status(503);
    // A server without queues is ready.
    let empty = delayline::connect("memory:").await.unwrap();
    for dashboard in [site(Vec::new()), site(Vec::new()).discover(empty)] {
        get(&dashboard.router().unwrap(), "/ready").await.status(200);
    }
}

const ALERTS: &str = include_str!("../../../../monitoring/alerts.yml");
const GRAFANA: &str = include_str!("../../../../monitoring/grafana/delayline.json");
const GUIDE: &str = include_str!("../../../delayline/docs/guides/observe.md");
/// The names of the metrics of workers.
const METERS: &str = include_str!("../../../delayline/src/telemetry/meters.rs");
/// Has a table of them with their labels.
const TELEMETRY: &str = include_str!("../../../delayline/src/telemetry.rs");
/// Say how an exporter makes histograms with buckets, and not summaries.
const BUCKETS: [&str; 2] = [include_str!("../../../delayline/docs/guides/dashboard.md"), TELEMETRY];

/// Labels of each metric.
type Labels = BTreeMap<String, BTreeSet<String>>;

/// The metrics of a page of an exporter.
fn exported(page: &str) -> Labels {
    let mut found = Labels::new();
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let head = line.rsplit_once(' ').unwrap().0;
        let named = named(head);
        let name = named.metrics.first().unwrap();
        let labels = found.entry(name.clone()).or_default();
        labels.extend(named.matched.iter().map(|(_, label)| label.clone()));
    }
    found
}

/// The metrics of workers whose exporter follows the guide.
fn of_workers() -> Labels {
    let mut found = Labels::new();
    for row in TELEMETRY.lines().filter(|line| line.starts_with("//! | `delayline_")) {
        let cells: Vec<_> = row.split(" | ").collect();
        let name = cells[1].trim_matches('`');
        assert!(METERS.contains(&format!("{name:?}")), "{name}");
        let mut labels: BTreeSet<String> =
            cells[3].split(", ").map(|it| it.trim_matches('`').to_owned()).collect();
        let call = format!("set_buckets_for_metric(Matcher::Full({name:?}");
        if cells[2] != "histogram" {
            found.insert(name.to_owned(), labels);
        } else if BUCKETS.iter().all(|text| text.contains(&call)) {
            labels.insert("le".to_owned());
            found.insert(format!("{name}_bucket"), labels);
        }
    }
    assert!(found.len() > 10, "{found:?}");
    found
}

/// The metrics that an expression asks for. All of them exist, and have the labels that it names.
fn asked(expr: &str, known: &Labels) -> Named {
    let named = named(expr);
    let labels = |metric: &str| known.get(metric).unwrap_or_else(|| panic!("{metric}: {expr}"));
    let mut of_any: BTreeSet<&str> =
        named.metrics.iter().flat_map(|it| labels(it)).map(|it| &**it).collect();
    for (metric, label) in &named.matched {
        assert!(labels(metric).contains(label), "{metric} has no label {label}: {expr}");
    }
    // A scrape adds these.
    of_any.extend(["instance", "job", "pod"]);
    for label in &named.listed {
        assert!(of_any.contains(&**label), "nothing has the label {label}: {expr}");
    }
    let quantile = named.called.contains("histogram_quantile");
    let buckets = of_any.contains("le");
    assert_eq!(quantile, buckets, "quantiles are of buckets: {expr}");
    named
}

/// The expression of an alert, and the labels that its texts name.
fn alert(text: &str) -> (String, Vec<&str>) {
    let expr = text.split_once("expr: ").unwrap().1;
    let end = expr.find("\n        for:").or_else(|| expr.find("\n        labels:")).unwrap();
    let expr = expr[..end].trim_start_matches(">-").to_owned();
    let told = text.split("$labels.").skip(1);
    (expr, told.map(|rest| rest.split(' ').next().unwrap()).collect())
}

#[tokio::test]
async fn alerts_and_dashboard_ask_for_metrics_and_labels_that_exist() {
    let home = tempfile::tempdir().unwrap();
    let connection = delayline::connect(&format!("file:{}", home.path().display())).await.unwrap();
    open(&connection, "texts").await;
    drop(connection.backend("spread").shards(2).await.unwrap());
    let orders = orders().await;
    orders.set_limits(SetLimits::new().leased(3).rate(Rate::per_second(10, 2))).await.unwrap();
    let schedules = Schedules::open(&connection).await.unwrap();
    let dashboard = Dashboard::new(Access::everyone(Role::Viewer)).queue(orders);
    let dashboard = dashboard.schedules(schedules).storage(connection.clone());
    let site = dashboard.discover(connection).router().unwrap();
    let page = get(&site, "/metrics").await.status(200);
    let exported = exported(page.text());
    let mut known = of_workers();
    // A metric that has no value yet is declared all the same.
    let declared = page.text().lines().filter_map(|line| line.strip_prefix("# TYPE "));
    known.extend(declared.map(|it| (it.split(' ').next().unwrap().to_owned(), BTreeSet::new())));
    known.extend(exported.clone());
    let dashboard: Value = serde_json::from_str(GRAFANA).unwrap();
    let mut used = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{panel}");
        for target in targets {
            let expr = target["expr"].as_str().unwrap().replace("$__rate_interval", "1m");
            let named = asked(&expr, &known);
            let metrics = &named.metrics;
            assert!(!metrics.is_empty(), "{expr}");
            // Several exporters may report the same queue, and each reports its own list and its
            // own directory.
            let is_own = |it: &String| it.contains("_discovery_") || it.contains("_directory_");
            let own = metrics.iter().all(is_own);
            let once = expr.contains(if own { " by (instance" } else { "max by (queue" });
            assert!(once || !metrics.iter().any(|it| exported.contains_key(it)), "{expr}");
            // What a legend names is left after the aggregation.
            let legend = target["legendFormat"].as_str().unwrap_or_default();
            for label in legend.split("{{").skip(1).map(|rest| rest.split("}}").next().unwrap()) {
                assert!(named.listed.contains(label), "{label} of {legend}: {expr}");
            }
            used.extend(named.metrics);
        }
    }
    // The choice of queues.
    let list = dashboard["templating"]["list"].as_array().unwrap();
    for query in list.iter().filter_map(|it| it["query"]["query"].as_str()) {
        let inner = query.strip_prefix("label_values(").and_then(|it| it.strip_suffix(')'));
        let (metric, label) = inner.and_then(|it| it.split_once(", ")).expect(query);
        assert!(known[metric].contains(label), "{query}");
    }
    for (expr, told) in ALERTS.split("- alert: ").skip(1).map(alert) {
        let named = asked(&expr, &known);
        for label in told {
            let of_scrape = label == "instance";
            let known = of_scrape || named.metrics.iter().any(|it| known[it].contains(label));
            assert!(known, "{label}: {expr}");
        }
        used.extend(named.metrics);
    }
    // And nothing that is exported goes unseen. A histogram is asked for by its buckets.
    let is_seen = |name: &String| {
        used.contains(name)
            || ["_count", "_sum"].iter().any(|end| {
                name.strip_suffix(end).is_some_and(|it| used.contains(&format!("{it}_bucket")))
            })
    };
    let unseen: Vec<_> = exported.keys().filter(|name| !is_seen(name)).collect();
    assert!(unseen.is_empty(), "{unseen:?}");
}

#[test]
fn every_alert_says_what_is_wrong() {
    let alerts: Vec<&str> = ALERTS.split("- alert: ").skip(1).collect();
    assert_eq!(alerts.len(), 15);
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
