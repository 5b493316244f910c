//! A collector receives what the program exports.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by a panic")]

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::Metric;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use prost::Message as _;
use tokio::net::TcpListener;

/// What a collector has received.
#[derive(Clone, Default)]
struct Collector {
    spans: Arc<Mutex<Vec<ExportTraceServiceRequest>>>,
    metrics: Arc<Mutex<Vec<ExportMetricsServiceRequest>>>,
}

async fn spans(State(collector): State<Collector>, body: Bytes) {
    collector.spans.lock().unwrap().push(ExportTraceServiceRequest::decode(body).unwrap());
}

async fn metrics(State(collector): State<Collector>, body: Bytes) {
    collector.metrics.lock().unwrap().push(ExportMetricsServiceRequest::decode(body).unwrap());
}

fn texts(attributes: &[KeyValue]) -> BTreeMap<&str, &str> {
    let texts = attributes.iter().filter_map(|it| match it.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some((it.key.as_str(), text.as_str())),
        _ => None,
    });
    texts.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_receives_linked_spans_and_metrics_by_the_conventions_for_messaging() {
    let collector = Collector::default();
    let router = Router::new().route("/v1/traces", post(spans)).route("/v1/metrics", post(metrics));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let router = router.with_state(collector.clone());
    tokio::spawn(async { axum::serve(listener, router).await.unwrap() });
    let run = move || {
        Command::new(env!("CARGO_BIN_EXE_delayline-opentelemetry"))
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
            .output()
            .unwrap()
    };
    let output = tokio::task::spawn_blocking(run).await.unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && printed.starts_with("done"), "{output:?}");

    let requests = collector.spans.lock().unwrap().clone();
    let resources: Vec<_> = requests.into_iter().flat_map(|it| it.resource_spans).collect();
    for resource in &resources {
        let attributes = &resource.resource.as_ref().unwrap().attributes;
        assert_eq!(texts(attributes)["service.name"], "shop");
    }
    let scopes = resources.into_iter().flat_map(|it| it.scope_spans);
    let spans: Vec<Span> = scopes.flat_map(|it| it.spans).collect();
    let one = |name: &str| {
        let found: Vec<_> = spans.iter().filter(|span| span.name == name).collect();
        let [span] = found[..] else { panic!("{name}: {} of {spans:#?}", found.len()) };
        span
    };
    let (request, wait) = (one("POST /orders"), one("wait for the order"));
    let (send, process) = (one("send example/orders"), one("process example/orders"));
    for span in [send, wait] {
        assert_eq!((&span.trace_id, &span.parent_span_id), (&request.trace_id, &request.span_id));
    }
    assert!(wait.end_time_unix_nano >= process.start_time_unix_nano, "it lasts until the ack");
    let [link] = &process.links[..] else { panic!("{process:#?}") };
    assert_eq!((&link.trace_id, &link.span_id), (&request.trace_id, &request.span_id));
    assert_ne!(process.trace_id, request.trace_id);
    for (span, name, kind) in
        [(send, "send", SpanKind::Producer), (process, "process", SpanKind::Consumer)]
    {
        let attributes = texts(&span.attributes);
        assert_eq!(span.kind(), kind);
        assert_eq!(attributes["messaging.system"], "delayline");
        assert_eq!(attributes["messaging.operation.name"], name);
        assert_eq!(attributes["messaging.operation.type"], name);
        assert_eq!(attributes["messaging.destination.name"], "example/orders");
        assert!(!attributes.contains_key("error.type"));
    }
    // Numbers are no texts.
    let epoch = process.attributes.iter().find(|it| it.key == "delayline.epoch").unwrap();
    assert_eq!(epoch.value.as_ref().unwrap().value, Some(Value::IntValue(1)));
    let id = |span: &Span| texts(&span.attributes)["messaging.message.id"].to_owned();
    assert_eq!(id(send), id(process));

    let requests = collector.metrics.lock().unwrap().clone();
    let scopes =
        requests.into_iter().flat_map(|it| it.resource_metrics).flat_map(|it| it.scope_metrics);
    let metrics: BTreeMap<String, Metric> =
        scopes.flat_map(|it| it.metrics).map(|it| (it.name.clone(), it)).collect();
    for name in ["messaging.process.duration", "messaging.client.operation.duration"] {
        let metric = metrics.get(name).unwrap_or_else(|| panic!("{name}: {:?}", metrics.keys()));
        assert_eq!(metric.unit, "s");
        let Some(Data::Histogram(histogram)) = &metric.data else { panic!("{metric:#?}") };
        let point = &histogram.data_points[0];
        assert!(point.count > 0 && point.explicit_bounds[0] == 0.001, "{point:#?}");
        let attributes = texts(&point.attributes);
        assert_eq!(attributes["messaging.system"], "delayline");
        assert_eq!(attributes["messaging.destination.name"], "example/orders");
    }
    let Some(Data::Sum(sent)) = &metrics["delayline_enqueued_total"].data else { panic!() };
    assert_eq!(texts(&sent.data_points[0].attributes)["result"], "created");
}
