//! Each metric that the documentation of `telemetry` lists, after runs whose values are known, in
//! virtual time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::support::{Fault, Faulty};
use async_trait::async_trait;
use delayline::admin::{QueueName, Rate, SetLimits};
use delayline::backend::{At, Backend, Op, QueueBackend, Wakeup};
use delayline::backend::{Lease, Millis, NewMessage};
use delayline::worker::{Undecodable, WorkerBuilder};
use delayline::{ErrorKind, Job, Jobs, Kind, Outcome, Queue, RetryPolicy, Worker, telemetry};
use delayline_core::{Applied, ClaimId, Error, Extend, Outcome as Settle, Settlement};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use tokio::task::JoinSet;
use tokio::time::sleep;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The measurements, by name and labels: `delayline_enqueued_total queue=numbers result=created`.
#[derive(Debug, Default)]
struct Measured {
    values: BTreeMap<String, DebugValue>,
    /// By name: kind, names of labels, whether there is a description.
    shapes: BTreeMap<String, BTreeSet<(String, Vec<String>, bool)>>,
}

impl Measured {
    /// Measures a run. Everything stays on this thread, and so does the recorder.
    async fn during(run: impl AsyncFnOnce()) -> Self {
        let recorder = DebuggingRecorder::new();
        let snapshotter = recorder.snapshotter();
        let guard = metrics::set_default_local_recorder(&recorder);
        telemetry::describe();
        run().await;
        drop(guard);
        let mut measured = Self::default();
        for (key, _unit, text, value) in snapshotter.snapshot().into_vec() {
            let (kind, key) = key.into_parts();
            let labels = key.labels().map(|label| format!("{}={}", label.key(), label.value()));
            let mut labels: Vec<String> = labels.collect();
            labels.sort();
            let names = labels.iter().map(|it| it.split('=').next().unwrap().to_owned()).collect();
            let shape = (format!("{kind:?}").to_lowercase(), names, text.is_some());
            measured.shapes.entry(key.name().to_owned()).or_default().insert(shape);
            measured.values.insert(format!("{} {}", key.name(), labels.join(" ")), value);
        }
        measured
    }

    fn value(&self, key: &str) -> &DebugValue {
        let value = self.values.get(key);
        value.unwrap_or_else(|| panic!("no {key} in {:#?}", self.values.keys()))
    }

    #[track_caller]
    fn counters(&self, expected: &[(&str, u64)]) {
        for (key, count) in expected {
            assert_eq!(*self.value(key), DebugValue::Counter(*count), "{key}");
        }
    }

    #[track_caller]
    fn gauges(&self, expected: &[(&str, f64)]) {
        for (key, level) in expected {
            assert_eq!(*self.value(key), DebugValue::Gauge((*level).into()), "{key}");
        }
    }

    /// The values of a histogram, in order of their size.
    fn histogram(&self, key: &str) -> Vec<f64> {
        let DebugValue::Histogram(values) = self.value(key) else { panic!("{key}") };
        let mut values: Vec<f64> = values.iter().map(|value| value.into_inner()).collect();
        values.sort_by(f64::total_cmp);
        values
    }
}

fn numbers(backend: Arc<dyn QueueBackend>) -> Queue<u64> {
    Queue::new(backend)
}

fn worker(queue: &Queue<u64>) -> WorkerBuilder<u64> {
    let retry = RetryPolicy::fixed(Duration::from_millis(1_000));
    Worker::builder(queue.clone()).concurrency(10).retry(retry)
}

/// Sends, every outcome once, and two tries to use a lease that is another's.
async fn every_outcome() {
    let backend = Faulty::new();
    let queue = numbers(backend.clone());
    for (id, value) in [("0", 0), ("1", 1), ("2", 2), ("3", 3), ("4", 4), ("5", 5)] {
        let draft = queue.message(&value).id(id).max_failures(2);
        assert!(draft.send().await.unwrap().is_accepted());
    }
    let again = |value| queue.message(&value).id("5").max_failures(2);
    assert!(again(5).send().await.unwrap().is_accepted());
    assert!(!again(7).send().await.unwrap().is_accepted());
    let expiring = queue.message(&6).expires_in(ms(1_000));
    let _ = expiring.send().await.unwrap();
    sleep(ms(5_000)).await;
    let work = worker(&queue).until_empty(true).build().unwrap().run(async |job: Job<u64>| {
        if *job.payload() == 0 {
            sleep(ms(200)).await;
        }
        match (*job.payload(), job.epoch()) {
            (1, 1) | (2, _) => Err("failed"),
            (3, 1) => Ok(Outcome::Snooze(ms(500))),
            (4, 1) => Ok(Outcome::Release),
            (5, _) => Ok(Outcome::reject("never")),
            _ => Ok(Outcome::Ack),
        }
    });
    work.await;
    let lease = Lease { claim_id: ClaimId::from_bytes([7; 16]), epoch: 1 };
    let id = || "2".try_into().unwrap();
    let settle = Op::Settle(vec![Settlement::new(id(), lease, Settle::Ack)]);
    let extend = Extend::new(vec![(id(), lease)], Millis::new(1_000).unwrap());
    for op in [settle, Op::Extend(extend)] {
        queue.backend().apply(At::Server, &op).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn messages_are_counted_by_what_became_of_them() {
    let measured = Measured::during(every_outcome).await;
    measured.counters(&[
        ("delayline_enqueued_total queue=numbers result=created", 7),
        ("delayline_enqueued_total queue=numbers result=duplicate", 1),
        ("delayline_enqueued_total queue=numbers result=conflict", 1),
        ("delayline_settled_total outcome=ack queue=numbers", 4),
        ("delayline_settled_total outcome=retry queue=numbers", 3),
        ("delayline_settled_total outcome=snooze queue=numbers", 1),
        ("delayline_settled_total outcome=release queue=numbers", 1),
        ("delayline_settled_total outcome=reject queue=numbers", 1),
        // 1 and 2 are tried again; 2 has failed permanently after that, and 5 at once; 6 has
        // expired.
        ("delayline_retries_total queue=numbers", 2),
        ("delayline_dead_total queue=numbers reason=max_failures", 1),
        ("delayline_dead_total queue=numbers reason=rejected", 1),
        ("delayline_dead_total queue=numbers reason=expired", 1),
        ("delayline_leases_lost_total queue=numbers", 2),
    ]);
    for (outcome, count) in [("ack", 4), ("retry", 3), ("snooze", 1), ("release", 1), ("reject", 1)]
    {
        let took = measured.histogram(&format!(
            "delayline_handler_duration_seconds outcome={outcome} queue=numbers"
        ));
        // They take no time, but 0 takes 200 ms.
        let longest = if outcome == "ack" { 0.2..0.21 } else { 0.0..0.001 };
        assert!(
            took.len() == count && longest.contains(took.last().unwrap()),
            "{outcome}: {took:?}"
        );
    }
    // Six were due 5 s before the worker began. Three of the returned messages had a new due
    // instant; the released one is as late as before.
    let lateness = measured.histogram("delayline_lateness_seconds queue=numbers");
    assert_eq!(lateness.len(), 10);
    let in_time = lateness.iter().filter(|late| **late <= 0.003).count();
    let late = lateness.iter().filter(|late| (5.0..5.01).contains(*late)).count();
    assert_eq!((in_time, late), (3, 7), "{lateness:?}");

    let batches =
        |op| measured.histogram(&format!("delayline_batch_messages op={op} queue=numbers"));
    assert_eq!(batches("enqueue"), [1.0; 9]);
    assert_eq!(batches("claim").last(), Some(&6.0));
    assert_eq!(batches("claim").iter().sum::<f64>(), 10.0);
    // That with the wrong lease as well.
    assert_eq!(batches("settle").iter().sum::<f64>(), 11.0);
}

/// Calls that fail in every way, and one that takes 100 ms.
async fn troubles() {
    let faults = [Fault::Busy, Fault::LostReply, Fault::SlowReply, Fault::Denied];
    let queue = numbers(Faulty::with_faults("enqueue", &faults));
    queue.send(&1).await.unwrap();
    assert!(queue.send(&2).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn calls_are_timed_by_their_results_and_repeats_are_counted() {
    let measured = Measured::during(troubles).await;
    measured.counters(&[("delayline_call_repeats_total op=enqueue queue=numbers", 2)]);
    let calls = |result| {
        let labels = format!("op=enqueue queue=numbers result={result}");
        measured.histogram(&format!("delayline_call_duration_seconds {labels}"))
    };
    for class in ["not_executed", "ambiguous", "rejected"] {
        assert_eq!(calls(class).len(), 1, "{class}");
    }
    let [took] = calls("ok")[..] else { panic!("{:?}", calls("ok")) };
    assert!((0.1..0.11).contains(&took), "{took}");
}

#[cfg(feature = "metrics-otel")]
#[tokio::test(start_paused = true)]
async fn durations_have_the_names_of_opentelemetry_as_well() {
    let measured = Measured::during(async || {
        every_outcome().await;
        troubles().await;
    });
    let measured = measured.await;
    let count = |metric: &str, operation: &str, kind: &str, error: Option<&str>| {
        let error = error.map(|error| format!("error.type={error} ")).unwrap_or_default();
        let labels = format!(
            "{error}messaging.destination.name=numbers messaging.operation.name={operation} \
             messaging.operation.type={kind} messaging.system=delayline"
        );
        measured.histogram(&format!("messaging.{metric} {labels}")).len()
    };
    assert_eq!(count("process.duration", "process", "process", None), 6);
    assert_eq!(count("process.duration", "process", "process", Some("retry")), 3);
    assert_eq!(count("process.duration", "process", "process", Some("reject")), 1);
    let calls = |error| count("client.operation.duration", "enqueue", "send", error);
    assert_eq!((calls(None), calls(Some("rejected")), calls(Some("ambiguous"))), (10, 1, 1));
    assert!(count("client.operation.duration", "claim", "receive", None) > 0);
}

/// No hints for a while, then one.
async fn hints() {
    let backend = Faulty::new();
    let queue = numbers(backend.clone());
    let worker = worker(&queue).build().unwrap();
    let handle = worker.handle();
    let stop = handle.clone();
    let running = tokio::spawn(worker.run(move |_: Job<u64>| {
        stop.stop(ms(0));
        async { Ok::<(), &str>(()) }
    }));
    sleep(ms(22_000)).await;
    queue.send(&1).await.unwrap();
    running.await.unwrap();

    let deaf = numbers(Arc::new(Deaf(Faulty::new())));
    Wakeup::wait(deaf.backend(), ms(1)).await.unwrap_err();
}

/// It gives no hints.
#[derive(Debug)]
struct Deaf(Arc<Faulty>);

#[async_trait]
impl Backend for Deaf {
    fn queue_name(&self) -> Option<&QueueName> {
        self.0.queue_name()
    }

    async fn apply(&self, at: At, op: &Op) -> Result<Applied, Error> {
        self.0.apply(at, op).await
    }
}

#[async_trait]
impl Wakeup for Deaf {
    async fn wait(&self, _timeout: Duration) -> Result<bool, Error> {
        Err(Error::new(ErrorKind::ConnectionLost))
    }
}

#[tokio::test(start_paused = true)]
async fn waits_for_hints_are_counted_by_how_they_end() {
    let measured = Measured::during(hints).await;
    measured.counters(&[
        ("delayline_doorbell_total queue=numbers result=hit", 1),
        ("delayline_doorbell_total queue=numbers result=error", 1),
    ]);
    let misses = measured.value("delayline_doorbell_total queue=numbers result=miss");
    // One every 5 s.
    let DebugValue::Counter(misses) = misses else { panic!("{misses:?}") };
    assert!((3..=5).contains(misses), "{misses}");
}

/// A queue with messages in every state.
async fn depths() {
    let backend = Faulty::new();
    let queue = numbers(backend.clone());
    for n in 0..4 {
        queue.send(&n).await.unwrap();
    }
    queue.send_in(&9, ms(60_000)).await.unwrap();
    let worker = worker(&queue).concurrency(2).build().unwrap();
    let handle = worker.handle();
    let running = tokio::spawn(worker.run(async |job: Job<u64>| {
        if *job.payload() == 0 {
            return Ok(Outcome::reject("never"));
        }
        job.cancellation().cancelled().await;
        Ok::<_, &str>(Outcome::Release)
    }));
    sleep(ms(2_500)).await;
    queue.pause().await.unwrap();
    queue.report_depths().await.unwrap();
    handle.stop(ms(0));
    running.await.unwrap();
}

/// A queue of several shards.
async fn sharded() {
    let connection = delayline::connect("memory:").await.unwrap();
    let queue: Queue<u64> = connection.queue("numbers").shards(2).await.unwrap();
    queue.report_depths().await.unwrap();
    let sent = queue.send(&1).await.unwrap();
    let found = queue.get(sent).await.unwrap();
    queue.stats_near(found.info().unwrap()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_call_to_one_shard_is_measured_like_one_to_all() {
    let measured = Measured::during(sharded).await;
    let calls = "delayline_call_duration_seconds op=stats queue=numbers result=ok";
    assert_eq!(measured.histogram(calls).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn depths_and_the_oldest_due_age_are_set_when_they_are_asked_for() {
    let measured = Measured::during(depths).await;
    measured.gauges(&[
        ("delayline_messages queue=numbers state=scheduled", 1.0),
        ("delayline_messages queue=numbers state=ready", 1.0),
        ("delayline_messages queue=numbers state=leased", 2.0),
        ("delayline_messages queue=numbers state=dead", 1.0),
        ("delayline_paused queue=numbers", 1.0),
        ("delayline_waiting_groups queue=numbers", 0.0),
        ("delayline_held queue=numbers", 0.0),
        ("delayline_limit_leased queue=numbers", f64::INFINITY),
        ("delayline_limit_each_group queue=numbers", f64::INFINITY),
        ("delayline_limit_rate_per_second queue=numbers", f64::INFINITY),
        ("delayline_limit_burst queue=numbers", f64::INFINITY),
    ]);
    let age = measured.value("delayline_oldest_due_age_seconds queue=numbers");
    let DebugValue::Gauge(age) = age else { panic!("{age:?}") };
    assert!((2.5..2.51).contains(&age.into_inner()), "{age}");

    // Nothing is due: no age, however far away the next one is.
    let measured = Measured::during(async || {
        let queue = numbers(Faulty::new());
        queue.send_in(&9, ms(60_000)).await.unwrap();
        let limits = SetLimits::new().leased(7).each_group(5).rate(Rate::per_minute(90, 3));
        queue.set_limits(limits.hold_for(ms(1_000))).await.unwrap();
        queue.report_depths().await.unwrap();
    });
    let none = [
        ("delayline_oldest_due_age_seconds queue=numbers", 0.0),
        ("delayline_paused queue=numbers", 0.0),
        ("delayline_held queue=numbers", 1.0),
        ("delayline_limit_leased queue=numbers", 7.0),
        ("delayline_limit_each_group queue=numbers", 5.0),
        ("delayline_limit_rate_per_second queue=numbers", 1.5),
        ("delayline_limit_burst queue=numbers", 3.0),
    ];
    measured.await.gauges(&none);
}

#[tokio::test(start_paused = true)]
async fn depths_are_reported_again_and_again_whatever_fails() {
    let backend = Faulty::with_faults("stats", &[Fault::None, Fault::Denied]);
    let queue = numbers(backend.clone());
    let reports = queue.clone();
    let reporting = tokio::spawn(async move { reports.report_depths_every(ms(10_000)).await });
    sleep(ms(35_000)).await;
    reporting.abort();
    let at: Vec<_> = backend.sent("stats").iter().map(|(at, _)| at.as_secs()).collect();
    assert_eq!(at, [0, 10, 20, 30]);
}

/// More sends at once than may wait.
async fn crowd() {
    let queue = numbers(Faulty::with_plan(|_| Fault::SlowReply));
    let mut sends = JoinSet::new();
    for n in 0..10_002 {
        let queue = queue.clone();
        sends.spawn(async move { queue.send(&n).await.is_err() });
    }
    let refused = sends.join_all().await.into_iter().filter(|refused| *refused).count();
    assert!((1..=2).contains(&refused), "{refused}");
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Close;

impl Kind for Close {
    const KIND: &'static str = "close";
}

/// A message whose kind has a handler, and one without a kind.
async fn jobs() {
    let jobs = Jobs::new(Queue::new(Faulty::new()));
    let _ = jobs.message(&Close).send().await.unwrap();
    let message = NewMessage::new("other".try_into().unwrap(), "null");
    let _ = jobs.queue().send_many([message]).await.remove(0).unwrap();
    let jobs = jobs.on(async |_: Job<Close>| Ok::<(), &str>(()));
    let worker = jobs.worker().on_undecodable(Undecodable::Reject).until_empty(true);
    worker.build().unwrap().run(jobs.handler().unwrap()).await;
}

#[tokio::test(start_paused = true)]
async fn handlers_are_timed_by_the_kind_of_their_message() {
    let measured = Measured::during(jobs).await;
    for labels in
        ["kind=close outcome=ack queue=numbers", "kind=unknown outcome=reject queue=numbers"]
    {
        let name = format!("delayline_job_duration_seconds {labels}");
        assert_eq!(measured.histogram(&name).len(), 1, "{name}");
    }
}

/// A scheduler that has not run for ten minutes.
#[cfg(all(feature = "schedules", feature = "testing"))]
async fn schedule() {
    use delayline::schedules::{Overlap, Schedules, Spec};
    // A full minute.
    let start = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_893_456_000);
    let test = delayline::testing::TestConnection::starting_at(start);
    let schedules = Schedules::open(test.connection()).await.unwrap();
    let spec = Spec::every(ms(60_000), "work").unwrap().payload("tick").unwrap();
    schedules.put("minutely", &spec.lead(ms(0)).unwrap()).await.unwrap();
    // Its second instant finds the message of the first, which is due by then.
    let skipping = Spec::every(ms(240_000), "skips").unwrap().overlap(Overlap::Skip);
    schedules.put("skipping", &skipping.lead(ms(0)).unwrap()).await.unwrap();
    let own = test.queue("schedules");
    test.advance(ms(630_000));
    let workers = test.workers().add(&own, schedules.handler());
    let _ = workers.drain_for(ms(1_000)).await;
    let skips = test.connection().queue::<str>("skips").await.unwrap();
    skips.reschedule_at("skipping@", start + ms(720_000)).await.unwrap();
    let _ = workers.drain_for(ms(299_000)).await;
}

#[cfg(all(feature = "schedules", feature = "testing"))]
#[tokio::test(start_paused = true)]
async fn ticks_are_counted_by_what_became_of_them() {
    let measured = Measured::during(schedule).await;
    // Of ten that were missed, the latest one was sent, half a minute late.
    measured.counters(&[
        ("delayline_schedule_ticks_total queue=work result=sent", 5),
        ("delayline_schedule_ticks_total queue=work result=late", 1),
        ("delayline_schedule_ticks_total queue=work result=missed", 9),
        ("delayline_schedule_ticks_total queue=skips result=late", 1),
        ("delayline_schedule_ticks_total queue=skips result=missed", 1),
        ("delayline_schedule_ticks_total queue=skips result=skipped", 1),
    ]);
}

#[tokio::test(start_paused = true)]
async fn what_is_measured_is_what_is_documented() {
    let everything = Measured::during(async || {
        every_outcome().await;
        troubles().await;
        hints().await;
        depths().await;
        sharded().await;
        crowd().await;
        jobs().await;
        #[cfg(all(feature = "schedules", feature = "testing"))]
        schedule().await;
    });
    let mut shapes = everything.await.shapes;
    shapes.retain(|name, _| name.starts_with("delayline_"));
    let has_schedules = cfg!(all(feature = "schedules", feature = "testing"));
    let documented: BTreeMap<_, _> = include_str!("../../src/telemetry.rs")
        .lines()
        .filter_map(|line| line.strip_prefix("//! | `delayline_"))
        .map(|row| {
            let cells: Vec<_> = row.split('|').map(str::trim).collect();
            let name = format!("delayline_{}", cells[0].trim_end_matches('`'));
            let mut labels: Vec<_> =
                cells[2].split(", ").map(|label| label.trim_matches('`').to_owned()).collect();
            labels.sort();
            // With a description for exporters, and always with the same labels.
            (name, BTreeSet::from([(cells[1].to_owned(), labels, true)]))
        })
        .filter(|(name, _)| has_schedules || name != "delayline_schedule_ticks_total")
        .collect();
    assert!(documented.len() >= 15, "{documented:#?}");
    assert_eq!(shapes, documented);
}
