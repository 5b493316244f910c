//! Schedules: each tick once, at its instant, whatever happens to schedulers and specs.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::{pending, ready};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use delayline::message::{MessageState, Status};
use delayline::schedules::{Overlap, Put, Schedules, Spec};
use delayline::testing::{TestConnection, TestQueue};
use delayline::{ErrorKind, Found, Job, Jobs, Kind, Outcome, Queue, with_state};
use serde::Serialize;

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const HOUR: Duration = Duration::from_secs(3_600);
/// A full hour, and midnight in UTC.
pub(crate) const START_MS: u64 = 1_893_456_000_000;

pub(crate) struct World {
    pub(crate) test: TestConnection,
    pub(crate) schedules: Schedules,
    pub(crate) own: TestQueue<Spec>,
    pub(crate) target: TestQueue<String>,
}

impl World {
    pub(crate) async fn new() -> Self {
        let test = TestConnection::starting_at(at(0));
        let schedules = Schedules::open(test.connection()).await.unwrap();
        let (own, target) = (test.queue("schedules"), test.queue("work"));
        Self { test, schedules, own, target }
    }

    /// Runs a scheduler for this time, and no worker of the target queue.
    pub(crate) async fn run_for(&self, time: Duration) {
        let _ = self.test.workers().add(&self.own, self.schedules.handler()).drain_for(time).await;
    }

    /// Runs a scheduler that dies with this number of schedules in its hands, before or after it
    /// sends their ticks.
    async fn scheduler_dies_with(&self, schedules: usize, sends: bool) {
        let worker = self.schedules.worker().build().unwrap();
        let (reached, mut handled) = tokio::sync::mpsc::unbounded_channel();
        let state = (self.schedules.handler(), reached);
        let dies = with_state(state, move |(handler, reached), job: Job<Spec>| async move {
            if sends {
                let _ = handler(job).await;
            }
            let _ = reached.send(());
            pending::<Result<Outcome, Infallible>>().await
        });
        let dead = tokio::spawn(worker.run(dies));
        for _ in 0..schedules {
            handled.recv().await.unwrap();
        }
        dead.abort();
        let _ = dead.await;
    }

    /// The ids of the messages of the target queue, in order, with their due times in seconds from
    /// the start.
    fn sent(&self) -> Vec<(String, u64)> {
        let sent = self.target.sent();
        sent.iter().map(|sent| (sent.id().to_string(), seconds(sent.due()))).collect()
    }

    pub(crate) fn ticks(&self) -> Vec<u64> {
        self.sent().into_iter().map(|(_, due)| due).collect()
    }
}

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(START_MS) + Duration::from_secs(seconds)
}

fn seconds(instant: SystemTime) -> u64 {
    instant.duration_since(at(0)).unwrap().as_secs()
}

fn every(interval: Duration) -> Spec {
    Spec::every(interval, "work").unwrap().payload("tick").unwrap()
}

#[tokio::test(start_paused = true)]
async fn each_tick_is_one_message_at_its_instant_created_ahead() {
    let world = World::new().await;
    assert_eq!(world.schedules.put("minutely", &every(MINUTE)).await.unwrap(), Put::Created);
    world.run_for(MINUTE * 10).await;
    // The last one is a lead ahead.
    let expected: Vec<_> =
        (1..=11).map(|n| (format!("minutely@{}", START_MS + n * 60_000), n * 60)).collect();
    assert_eq!(world.sent(), expected);
    let first = &world.target.sent()[0];
    first.assert_payload(&"tick".to_owned());
    first.assert_header("delayline-schedule", "minutely");
    first.assert_header("delayline-tick", (START_MS + 60_000).to_string());
}

#[tokio::test(start_paused = true)]
async fn schedulers_that_die_at_any_step_neither_lose_nor_double_a_tick() {
    for seed in 0..20 {
        let world = World::new().await;
        let lead = Duration::from_secs(30 * (seed % 4));
        world.schedules.put("a", &every(MINUTE).lead(lead).unwrap()).await.unwrap();
        let dice = Arc::new(AtomicU64::new(seed));
        let handler = world.schedules.handler();
        let dies_often =
            with_state((dice, handler), |(dice, handler), job: Job<Spec>| async move {
                let roll = dice.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed).rotate_left(29);
                match roll % 4 {
                    // It dies before it sends, or before it settles: the schedule stays as it was.
                    0 => Ok::<_, delayline::Error>(Outcome::Release),
                    1 => handler(job).await.map(|_| Outcome::Release),
                    _ => handler(job).await,
                }
            });
        let _ = world.test.workers().add(&world.own, dies_often).drain_for(HOUR).await;
        let ahead = u64::from(lead >= MINUTE);
        let expected: Vec<_> = (1..=60 + ahead).map(|n| n * 60).collect();
        assert_eq!(world.ticks(), expected, "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_scheduler_that_is_stopped_before_it_sends_leaves_its_ticks_to_the_next() {
    let world = World::new().await;
    world.schedules.put("a", &every(MINUTE)).await.unwrap();
    let worker = world.schedules.worker().build().unwrap();
    let state = (world.schedules.handler(), worker.handle());
    let stopped = with_state(state, |(handler, stop), job: Job<Spec>| async move {
        stop.stop(Duration::ZERO);
        job.cancellation().cancelled().await;
        handler(job).await
    });
    worker.run(stopped).await;
    world.run_for(Duration::ZERO).await;
    assert_eq!(world.ticks(), [60]);
}

#[tokio::test(start_paused = true)]
async fn the_death_of_schedulers_delays_no_tick_whose_lead_is_longer_than_their_lease() {
    let world = World::new().await;
    let spec = every(SECOND).lead(SECOND * 2).unwrap();
    world.schedules.put("a", &spec).await.unwrap();
    world.run_for(Duration::ZERO).await;
    for second in 1..=10 {
        world.test.advance(SECOND);
        if second % 3 == 1 {
            world.scheduler_dies_with(1, false).await;
        } else {
            world.run_for(Duration::ZERO).await;
        }
        assert!(world.ticks().len() > second, "{second}: {:?}", world.ticks());
    }
    assert_eq!(world.ticks(), (1..=11).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn after_a_downtime_the_latest_missed_tick_is_sent_once_within_the_grace() {
    for (grace, expected) in [(HOUR, vec![3 * 3_600, 4 * 3_600]), (MINUTE, vec![4 * 3_600])] {
        let world = World::new().await;
        let spec = every(HOUR).lead(Duration::ZERO).unwrap().grace(grace).unwrap();
        world.schedules.put("hourly", &spec).await.unwrap();
        world.test.advance(HOUR * 3 + MINUTE * 10);
        world.run_for(MINUTE * 55).await;
        assert_eq!(world.ticks(), expected, "{grace:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_skipping_schedule_waits_for_its_last_message() {
    let world = World::new().await;
    let spec = every(MINUTE).overlap(Overlap::Skip);
    world.schedules.put("sync", &spec).await.unwrap();
    world.run_for(MINUTE * 5).await;
    assert_eq!(world.sent(), [("sync@".to_owned(), 60)]);
    let workers = world.test.workers().add(&world.target, |_| ready(Ok::<_, io::Error>(())));
    assert_eq!(workers.drain_due().await.count(Status::Acked), 1);
    world.run_for(MINUTE * 2).await;
    assert_eq!(world.ticks(), [60, 6 * 60]);

    // A scheduler dies after it has sent a tick, and another one comes when its message is handled.
    world.test.advance(MINUTE);
    let workers = || world.test.workers().add(&world.target, |_| ready(Ok::<_, io::Error>(())));
    workers().drain_due().await;
    world.scheduler_dies_with(1, true).await;
    assert_eq!(workers().drain_due().await.count(Status::Acked), 1);
    let sent = world.ticks();
    world.test.advance(Duration::from_secs(50));
    world.run_for(Duration::ZERO).await;
    assert_eq!(world.ticks(), sent);
}

#[tokio::test(start_paused = true)]
async fn a_schedule_that_is_a_dead_letter_can_be_paused_and_resumed() {
    for pauses in [false, true] {
        let world = World::new().await;
        world.schedules.put("a", &every(MINUTE)).await.unwrap();
        let rejects = |_: Job<Spec>| ready(Ok::<_, Infallible>(Outcome::reject("no more")));
        let _ = world.test.workers().add(&world.own, rejects).drain_due().await;
        let entry = async || world.schedules.get("a").await.unwrap().unwrap();
        assert!(entry().await.is_dead && entry().await.next.is_empty());
        if pauses {
            assert!(world.schedules.pause("a").await.unwrap());
            assert!(entry().await.is_paused && !entry().await.is_dead);
        }
        assert!(world.schedules.resume("a").await.unwrap());
        world.run_for(MINUTE).await;
        assert_eq!(world.ticks(), [60, 120], "{pauses}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_scheduler_a_schedule_is_overdue_from_its_first_instant() {
    let world = World::new().await;
    let overdue = async || {
        let entry = world.schedules.get("a").await.unwrap().unwrap();
        assert_eq!(entry.overdue, world.schedules.overdue().await.unwrap());
        let last =
            world.schedules.last_ticks(std::slice::from_ref(&entry)).await.unwrap().remove(0);
        (entry.overdue, last.map(|last| seconds(last.instant)))
    };
    world.test.advance(HOUR / 2);
    world.schedules.put("a", &every(HOUR).lead(MINUTE * 40).unwrap()).await.unwrap();
    // Its latest instant was before it existed.
    assert_eq!(overdue().await, (Duration::ZERO, None));
    world.test.advance(HOUR);
    assert_eq!(overdue().await, (HOUR / 2, Some(3_600)));
    world.test.advance(HOUR);
    assert_eq!(overdue().await, (HOUR * 3 / 2, Some(7_200)));
    world.scheduler_dies_with(1, false).await;
    assert_eq!(overdue().await, (HOUR * 3 / 2, Some(7_200)));
    world.test.advance(MINUTE);
    world.run_for(Duration::ZERO).await;
    assert_eq!(overdue().await, (Duration::ZERO, Some(7_200)));
    world.schedules.pause("a").await.unwrap();
    world.test.advance(HOUR);
    assert_eq!(overdue().await.0, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn unchanged_specs_keep_their_instant_and_changed_ones_count_from_now() {
    let world = World::new().await;
    let daily = Spec::cron("0 12 * * *", "UTC", "work").unwrap();
    assert_eq!(world.schedules.put("daily", &daily).await.unwrap(), Put::Created);
    // However often it is deployed, also when the tick is due and no scheduler runs.
    world.test.advance(HOUR * 12 + MINUTE);
    assert_eq!(world.schedules.put("daily", &daily).await.unwrap(), Put::Unchanged);
    world.run_for(MINUTE).await;
    assert_eq!(world.ticks(), [12 * 3_600]);
    // A past instant of the new line is not one that was missed.
    let earlier = Spec::cron("0 11 * * *", "UTC", "work").unwrap();
    assert_eq!(world.schedules.put("daily", &earlier).await.unwrap(), Put::Changed);
    world.run_for(HOUR).await;
    assert_eq!(world.ticks(), [12 * 3_600]);
    // Another payload at the same instants does not move the next one.
    let other = Spec::cron("0 11 * * *", "UTC", "work").unwrap().payload("other").unwrap();
    assert_eq!(world.schedules.put("daily", &other).await.unwrap(), Put::Changed);
    world.run_for(HOUR * 24).await;
    assert_eq!(world.ticks(), [12 * 3_600, 35 * 3_600]);
    world.target.sent()[1].assert_payload(&"other".to_owned());
}

#[tokio::test(start_paused = true)]
async fn a_paused_schedule_of_a_queue_that_is_moved_stays_paused() {
    let world = World::new().await;
    world.schedules.put("a", &every(MINUTE)).await.unwrap();
    assert!(world.schedules.pause("a").await.unwrap());
    let connection = world.test.connection();
    let from: Queue<Spec> = connection.queue("schedules").await.unwrap();
    let to: Queue<Spec> = connection.queue("moved").await.unwrap();
    assert_eq!(from.transfer_to(&to).unwrap().pass().await.unwrap(), 1);
    let moved = Schedules::open_named(connection, "moved").await.unwrap();
    assert!(moved.list().await.unwrap()[0].is_paused);
    assert!(moved.resume("a").await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn changes_pauses_and_removals_cancel_what_was_created_ahead() {
    let world = World::new().await;
    let spec = every(MINUTE).lead(MINUTE * 10).unwrap();
    world.schedules.put("a", &spec).await.unwrap();
    world.run_for(MINUTE).await;
    let waiting = async || world.target.queue().stats().await.unwrap().scheduled;
    assert_eq!(waiting().await, 10);
    let changed = every(MINUTE).lead(MINUTE).unwrap();
    assert_eq!(world.schedules.put("a", &changed).await.unwrap(), Put::Changed);
    assert_eq!(waiting().await, 0);
    // The instants that both have in common are created again.
    world.run_for(MINUTE * 12).await;
    assert_eq!(world.ticks().last(), Some(&(14 * 60)));

    assert!(world.schedules.pause("a").await.unwrap());
    assert_eq!(waiting().await, 0);
    let ticks = world.ticks().len();
    world.run_for(HOUR).await;
    assert_eq!(world.schedules.put("a", &changed).await.unwrap(), Put::Unchanged);
    assert!(world.schedules.list().await.unwrap()[0].is_paused);
    assert_eq!(world.ticks().len(), ticks, "it is paused");
    assert!(world.schedules.resume("a").await.unwrap());
    world.run_for(MINUTE).await;
    assert_eq!(world.ticks()[ticks..], [74 * 60, 75 * 60]);

    assert!(world.schedules.remove("a").await.unwrap());
    assert!(!world.schedules.remove("a").await.unwrap());
    assert_eq!(waiting().await, 0);
    assert!(!world.schedules.pause("a").await.unwrap());
    assert!(world.schedules.run_now("a").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_change_shortly_before_a_tick_loses_nothing() {
    let world = World::new().await;
    let target =
        |queue: &str, payload: &str| Spec::every(HOUR, queue).unwrap().payload(payload).unwrap();
    world.schedules.put("a", &target("work", "old")).await.unwrap();
    // The tick exists, and is due in half a minute.
    world.run_for(HOUR - MINUTE / 2).await;
    assert_eq!(world.ticks(), [3_600]);
    let put = world.schedules.put("a", &target("work", "new")).await.unwrap();
    assert_eq!(put, Put::Changed);
    let found = world.target.queue().get(world.sent()[0].0.as_str()).await.unwrap();
    assert!(matches!(found, Found::Live(message) if message.payload == "new"));

    // Back and forth between instants, as by two versions that are deployed side by side.
    let half = Spec::cron("30 * * * *", "UTC", "work").unwrap();
    world.schedules.put("a", &half).await.unwrap();
    world.schedules.put("a", &target("work", "last")).await.unwrap();
    world.run_for(MINUTE).await;
    let handled = world.test.workers().add(&world.target, |job: Job<String>| {
        assert_eq!(job.payload(), "last");
        ready(Ok::<_, io::Error>(()))
    });
    assert_eq!(handled.drain_due().await.count(Status::Acked), 1);

    // To another queue.
    world.run_for(HOUR - MINUTE).await;
    let elsewhere: TestQueue<String> = world.test.queue("elsewhere");
    world.schedules.put("a", &target("elsewhere", "moved")).await.unwrap();
    world.run_for(MINUTE).await;
    assert_eq!(elsewhere.sent().len(), 1);
    assert_eq!(world.target.queue().stats().await.unwrap().ready, 0);
}

#[tokio::test(start_paused = true)]
async fn a_message_about_to_be_delivered_keeps_its_content() {
    let world = World::new().await;
    let lead = MINUTE * 3;
    world.schedules.put("a", &every(MINUTE).lead(lead).unwrap()).await.unwrap();
    world.run_for(Duration::from_secs(57)).await;
    let other = every(MINUTE).lead(lead).unwrap().payload("other").unwrap();
    assert_eq!(world.schedules.put("a", &other).await.unwrap(), Put::Changed);
    let mut delivered = Vec::new();
    for tick in 1..=3 {
        let id = format!("a@{}", START_MS + tick * 60_000);
        let Found::Live(message) = world.target.queue().get(id).await.unwrap() else {
            panic!("tick {tick} is gone")
        };
        delivered.push(message.payload);
    }
    assert_eq!(delivered, ["tick", "other", "other"]);
}

/// A live scheduler acts between any two steps of a change.
#[tokio::test]
async fn a_change_beside_a_live_scheduler_loses_no_tick() {
    let connection = delayline::connect("memory:").await.unwrap();
    let schedules = Schedules::open(&connection).await.unwrap();
    let target: Queue<String> = connection.queue("work").await.unwrap();
    let worker = schedules.worker().build().unwrap();
    let (stop, run) = (worker.handle(), tokio::spawn(worker.run(schedules.handler())));
    for lead in [10, 20, 10, 20, 10] {
        schedules.put("a", &every(MINUTE).lead(MINUTE * lead).unwrap()).await.unwrap();
        // The scheduler has created what is ahead.
        loop {
            let Found::Live(message) = schedules.queue().get("a").await.unwrap() else {
                panic!("the schedule is gone")
            };
            let is_waiting = message.info.state == MessageState::Scheduled;
            if is_waiting && SystemTime::from(message.info.due) > SystemTime::now() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // The tenth one may be created a moment later.
        let next = schedules.list().await.unwrap()[0].next.clone();
        for instant in &next[..9] {
            let tick = instant.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis();
            let revisions = (1..8).map(|revision| format!("a@{tick}.{revision}"));
            let ids: Vec<_> = [format!("a@{tick}")].into_iter().chain(revisions).collect();
            let found = target.get_many(ids.iter().map(String::as_str)).await.unwrap();
            let live = found.iter().filter(|found| matches!(found, Found::Live(_))).count();
            assert_eq!(live, 1, "lead of {lead} min, {tick}: {found:?}");
        }
    }
    stop.stop(Duration::ZERO);
    run.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_owner_declares_its_schedules_and_no_others() {
    let world = World::new().await;
    let (schedules, spec) = (&world.schedules, every(HOUR));
    schedules.put("shop", &spec).await.unwrap();
    let named =
        |names: &[&'static str]| names.iter().map(|&name| (name, spec.clone())).collect::<Vec<_>>();
    let declared = schedules.declare("shop", named(&["a", "b"])).await.unwrap();
    assert_eq!((declared.created, declared.unchanged, declared.removed), (2, 0, 0));
    schedules.declare("shop2", named(&["a"])).await.unwrap();
    schedules.declare("sho", named(&["p/a"])).await.unwrap();
    let declared = schedules.declare("shop", named(&["b", "c"])).await.unwrap();
    assert_eq!((declared.created, declared.unchanged, declared.removed), (1, 1, 1));
    let names: Vec<_> =
        schedules.list().await.unwrap().into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, ["sho/p/a", "shop", "shop/b", "shop/c", "shop2/a"]);
    for (refused, named_in_error) in [(["d", "d"], "\"shop/d\""), (["d", ""], "\"shop/\"")] {
        let error = schedules.declare("shop", named(&refused)).await.unwrap_err();
        assert!(error.is_invalid() && error.to_string().contains(named_in_error), "{error}");
    }
    assert_eq!(schedules.list().await.unwrap().len(), 5);
    let declared = schedules.declare("shop", named(&[])).await.unwrap();
    assert_eq!(declared.removed, 2);
    assert_eq!(schedules.list().await.unwrap().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_schedule_runs_now_without_effect_on_its_ticks() {
    let world = World::new().await;
    world.schedules.put("hourly", &every(HOUR)).await.unwrap();
    let sent = world.schedules.run_now("hourly").await.unwrap().unwrap();
    assert_eq!(sent.id.to_string(), format!("hourly@{START_MS}.now"));
    world.run_for(HOUR).await;
    assert_eq!(world.ticks(), [0, 3_600]);
    let entry = &world.schedules.list().await.unwrap()[0];
    assert_eq!(entry.next.first(), Some(&at(2 * 3_600)));
    assert_eq!(entry.next.len(), 10);
}

#[test]
fn the_next_instant_is_the_first_after_a_part_of_a_millisecond() {
    let next = |after| every(MINUTE).upcoming(after).next();
    assert_eq!(next(at(60) - Duration::from_micros(500)), Some(at(60)));
    assert_eq!(next(at(60)), Some(at(120)));
    assert_eq!(next(SystemTime::UNIX_EPOCH - MINUTE), None);
    let end = SystemTime::UNIX_EPOCH + Duration::from_secs(253_402_300_800);
    assert_eq!((next(end - MINUTE * 2), next(end - MINUTE)), (Some(end - MINUTE), None));
}

#[derive(Serialize)]
struct Report {
    shop: u64,
}

impl Kind for Report {
    const KIND: &'static str = "report";
}

#[derive(Serialize)]
struct Unnamed;

impl Kind for Unnamed {
    const KIND: &'static str = "";
}

#[tokio::test(start_paused = true)]
async fn ticks_are_jobs_of_a_kind_and_a_group() {
    let world = World::new().await;
    let spec = Spec::every(MINUTE, "work").unwrap().job(&Report { shop: 17 }).unwrap();
    let spec = spec.group("shop-17").unwrap();
    world.schedules.put("report", &spec).await.unwrap();
    world.run_for(MINUTE).await;
    let jobs = Jobs::new(world.test.connection().queue("work").await.unwrap());
    let Found::Live(message) =
        jobs.queue().get(format!("report@{}", START_MS + 60_000)).await.unwrap()
    else {
        panic!("it is gone")
    };
    assert_eq!(message.headers.kind(), Some("report"));
    assert_eq!(message.info.group.unwrap().as_str(), "shop-17");
    assert_eq!(message.payload.as_bytes(), r#"{"shop":17}"#);
}

#[tokio::test]
async fn invalid_names_and_specs_are_refused_before_anything_is_sent() {
    let world = World::new().await;
    let invalid = |error: delayline::Error| matches!(error.kind(), ErrorKind::Invalid(_));
    let spec = every(MINUTE);
    for name in ["", "a@b", &"x".repeat(101)] {
        assert!(invalid(world.schedules.put(name, &spec).await.unwrap_err()), "{name}");
    }
    for owner in ["", "a/b"] {
        let declared = world.schedules.declare(owner, [("a", spec.clone())]).await;
        assert!(invalid(declared.unwrap_err()), "{owner}");
    }
    let own = Spec::every(MINUTE, "schedules").unwrap();
    assert!(invalid(world.schedules.put("a", &own).await.unwrap_err()));
    assert!(invalid(world.schedules.declare("a", [("a", own)]).await.unwrap_err()));
    assert!(invalid(Spec::every(Duration::from_millis(999), "work").unwrap_err()));
    assert!(invalid(Spec::every(MINUTE, "").unwrap_err()));
    assert!(invalid(Spec::cron("0 0 31 2 *", "UTC", "work").unwrap_err()));
    assert!(invalid(Spec::cron("* * * * *", "Mars/Olympus", "work").unwrap_err()));
    assert!(invalid(every(SECOND).lead(MINUTE * 2).unwrap_err()));
    assert!(invalid(every(MINUTE).job(&Unnamed).unwrap_err()));
    let each_second = Spec::cron("*/30 * * * * *", "UTC", "work").unwrap();
    assert!(invalid(each_second.lead(MINUTE * 2).unwrap_err()));
    for (line, zone) in [("@every 10ms", "UTC"), ("@every day", "UTC"), ("@every 1h", "Mars/Base")]
    {
        assert!(invalid(Spec::cron(line, zone, "work").unwrap_err()), "{line} {zone}");
    }
    let interval = Spec::cron(" @every 1h30m", "Europe/Berlin", "work").unwrap();
    assert_eq!(interval, Spec::every(MINUTE * 90, "work").unwrap());
    assert!(invalid(every(MINUTE).grace(HOUR * 24 * 32).unwrap_err()));
    for (error, what) in [
        (Spec::every(Duration::MAX, "work").unwrap_err(), "the interval"),
        (every(MINUTE).lead(Duration::MAX).unwrap_err(), "the lead"),
        (every(MINUTE).grace(Duration::MAX).unwrap_err(), "the grace"),
    ] {
        let expected = format!("{what} \"18446744073709551615 ms\" is not valid: a schedule has");
        assert!(error.to_string().starts_with(&expected), "{error}");
    }
    world.own.assert_nothing_sent();

    for wrong in [
        r#"{"queue":"work"}"#,
        r#"{"every_ms":1000,"cron":"* * * * *","queue":"work"}"#,
        r#"{"every_ms":1000,"zone":"UTC","queue":"work"}"#,
        r#"{"every_ms":10,"queue":"work"}"#,
        r#"{"every_ms":1000,"queue":"work","unknown":1}"#,
        r#"{"every_ms":1000,"queue":"work","kind":""}"#,
        r#"{"every_ms":1000,"queue":"work","group":""}"#,
    ] {
        assert!(serde_json::from_str::<Spec>(wrong).is_err(), "{wrong}");
    }
    let mut forms = BTreeMap::new();
    let daily = Spec::cron("@daily", "Europe/Berlin", "work").unwrap().group("t").unwrap();
    let members: serde_json::Value = serde_json::from_str(r#"{"b":[{},0.5],"a":[]}"#).unwrap();
    let numbers = Spec::every(HOUR, "work").unwrap().payload(&(u128::MAX, members)).unwrap();
    for spec in [every(MINUTE), daily, numbers] {
        let text = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<Spec>(&text).unwrap(), spec);
        forms.insert(text, ());
    }
    assert_eq!(
        forms.into_keys().collect::<Vec<_>>(),
        [
            r#"{"cron":"@daily","zone":"Europe/Berlin","queue":"work","payload":null,"group":"t"}"#,
            r#"{"every_ms":3600000,"queue":"work","payload":[340282366920938463463374607431768211455,{"a":[],"b":[{},0.5]}]}"#,
            r#"{"every_ms":60000,"queue":"work","payload":"tick"}"#,
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn schedules_of_a_dead_scheduler_can_be_changed_and_removed() {
    for lives in [false, true] {
        let world = World::new().await;
        let schedules = &world.schedules;
        for name in ["changed", "removed"] {
            schedules.put(name, &every(MINUTE).lead(Duration::ZERO).unwrap()).await.unwrap();
        }
        world.test.advance(MINUTE);
        world.scheduler_dies_with(2, false).await;

        let hourly = every(HOUR).lead(Duration::ZERO).unwrap();
        let change = async { schedules.put("changed", &hourly).await.unwrap() };
        let remove = async { schedules.remove("removed").await.unwrap() };
        let pass_of_time = async {
            for _ in 0..34 {
                tokio::time::sleep(Duration::from_secs(1)).await;
                world.test.advance(Duration::from_secs(1));
                if lives {
                    world.run_for(Duration::ZERO).await;
                }
            }
        };
        let (put, removed, ()) = tokio::join!(change, remove, pass_of_time);
        assert_eq!((put, removed), (Put::Changed, true));
        world.run_for(MINUTE * 2).await;
        let left: Vec<_> =
            schedules.list().await.unwrap().into_iter().map(|entry| entry.name).collect();
        assert_eq!(left, ["changed"]);
        assert_eq!(world.sent(), [], "the specs that were replaced sent something");
        world.run_for(HOUR).await;
        assert_eq!(world.sent().len(), 1);
    }
}
