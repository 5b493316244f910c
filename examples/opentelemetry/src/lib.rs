#![doc = include_str!("../../../crates/delayline/docs/guides/opentelemetry.md")]

use std::str::FromStr;

use delayline::Job;
use delayline::telemetry::TraceContext;
use metrics_exporter_otel::OpenTelemetryRecorder;
use opentelemetry::metrics::MeterProvider;
use opentelemetry::trace::{
    SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState, TracerProvider,
};
use opentelemetry_otlp::{MetricExporter, SpanExporter};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::{Level, Span};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

/// Any error.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// Exports spans and metrics until it is stopped.
#[derive(Debug)]
pub struct Telemetry {
    spans: SdkTracerProvider,
    metrics: SdkMeterProvider,
}

impl Telemetry {
    /// Exports the spans and metrics of this process, over HTTP, to the collector that
    /// `OTEL_EXPORTER_OTLP_ENDPOINT` names: by default, the one on this machine.
    ///
    /// # Errors
    ///
    /// If a variable is malformed, or the process has a subscriber or a recorder already.
    pub fn start(service: &'static str) -> Result<Self, Error> {
        let resource = Resource::builder().with_service_name(service).build();
        let spans = SdkTracerProvider::builder()
            .with_resource(resource.clone())
            .with_batch_exporter(SpanExporter::builder().with_http().build()?)
            .build();
        let metrics = SdkMeterProvider::builder()
            .with_resource(resource)
            .with_periodic_exporter(MetricExporter::builder().with_http().build()?)
            .build();
        let recorder = OpenTelemetryRecorder::new(metrics.meter("delayline"));
        let buckets = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0];
        for name in DURATIONS {
            recorder.set_histogram_bounds(&name.into(), buckets.to_vec());
        }
        metrics::set_global_recorder(recorder)?;
        // Units and descriptions.
        delayline::telemetry::describe();
        let layer = tracing_opentelemetry::layer().with_tracer(spans.tracer("delayline"));
        // At DEBUG, sends and calls have spans, too.
        let levels =
            Targets::new().with_default(Level::INFO).with_target("delayline", Level::DEBUG);
        tracing_subscriber::registry().with(layer).with(levels).try_init()?;
        Ok(Self { spans, metrics })
    }

    /// Exports the remaining spans and metrics. Blocks until the collector has answered.
    ///
    /// # Errors
    ///
    /// If the collector cannot be reached.
    pub fn stop(self) -> Result<(), Error> {
        // Both, even if the first one fails.
        let (spans, metrics) = (self.spans.shutdown(), self.metrics.shutdown());
        spans?;
        Ok(metrics?)
    }
}

/// Durations that get buckets in seconds. The default ones are for milliseconds.
const DURATIONS: [&str; 6] = [
    "delayline_lateness_seconds",
    "delayline_handler_duration_seconds",
    "delayline_job_duration_seconds",
    "delayline_call_duration_seconds",
    "messaging.client.operation.duration",
    "messaging.process.duration",
];

/// The caller's span, as a message carries it. `None` without one.
#[must_use]
pub fn sender() -> Option<TraceContext> {
    let context = Span::current().context();
    let span = context.span().span_context().clone();
    let trace_id = u128::from_be_bytes(span.trace_id().to_bytes());
    let span_id = u64::from_be_bytes(span.span_id().to_bytes());
    let context = TraceContext::new(trace_id, span_id, span.is_sampled()).ok()?;
    let state = span.trace_state().header();
    if state.is_empty() { Some(context) } else { context.with_state(state).ok() }
}

/// Links the current span to the span of the sender, if the message has its context.
pub fn link_to_sender<T>(job: &Job<T>) {
    let Some(sender) = TraceContext::from_headers(job.headers()) else { return };
    Span::current().add_link(SpanContext::new(
        TraceId::from_bytes(sender.trace_id().to_be_bytes()),
        SpanId::from_bytes(sender.span_id().to_be_bytes()),
        TraceFlags::default().with_sampled(sender.is_sampled()),
        true,
        sender.state().and_then(|state| TraceState::from_str(state).ok()).unwrap_or_default(),
    ));
}
