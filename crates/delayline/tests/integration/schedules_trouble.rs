//! Schedules whose queues, targets and clocks have trouble: no tick twice, and none lost but those
//! of a downtime.

use std::convert::Infallible;
use std::future::{pending, ready};
use std::io;
use std::time::Duration;

use delayline::codec::Raw;
use delayline::message::Status;
use delayline::schedules::{Overlap, Put, Schedules, Spec};
use delayline::testing::SentMessage;
use delayline::{Bytes, ErrorKind, Found, Job, Outcome, Queue};
use tokio::time::timeout;

use crate::schedules::{HOUR, MINUTE, SECOND, START_MS, World};

/// The minutes of all messages of the target queue, in order.
fn minutes(world: &World) -> Vec<u64> {
    world.ticks().into_iter().map(|second| second / 60).collect()
}

fn minutely() -> Spec {
    Spec::every(MINUTE, "work").unwrap().payload("tick").unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_paused_target_gets_its_messages_and_delivers_them_when_it_is_resumed() {
    let world = World::new().await;
    world.schedules.put("a", &minutely().lead(Duration::ZERO).unwrap()).await.unwrap();
    world.target.queue().pause().await.unwrap();
    world.run_for(MINUTE * 5).await;
    assert_eq!(minutes(&world), [1, 2, 3, 4, 5]);
    let worker = || {
        let handler = |_: Job<String>| ready(Ok::<_, io::Error>(()));
        world.test.workers().add(&world.target, handler)
    };
    assert_eq!(worker().drain_due().await.count(Status::Acked), 0);
    world.target.queue().resume().await.unwrap();
    assert_eq!(worker().drain_due().await.count(Status::Acked), 5);
}

#[tokio::test(start_paused = true)]
async fn a_schedule_that_cannot_be_read_hides_no_others_and_can_be_removed() {
    let world = World::new().await;
    let due = world.test.now() + MINUTE * 60;
    let raw: Queue<Bytes, Raw> =
        world.test.connection().queue("schedules").await.unwrap().codec(Raw);
    let newer = r#"{"queue":"work","every_ms":60000,"jitter_ms":5}"#;
    let zoneless = r#"{"queue":"work","cron":"@daily","zone":"Mars/Base"}"#;
    for (name, text) in [("shop/a", newer), ("shop/b", zoneless), ("no", "no schedule")] {
        let sent = raw.message(&Bytes::from(text)).id(name).due_at(due).send().await.unwrap();
        assert!(sent.is_accepted());
    }
    // The owner's other schedules are removed.
    let declared = world.schedules.declare("shop", [("c", minutely())]).await.unwrap();
    assert_eq!((declared.created, declared.removed), (1, 2));
    let entries = world.schedules.list().await.unwrap();
    let listed: Vec<_> = entries.iter().map(|it| (&it.name[..], it.spec.as_ref())).collect();
    assert_eq!(listed, [("no", None), ("shop/c", Some(&minutely()))]);
    assert!(entries[0].next.is_empty() && !entries[0].is_paused);
    assert!(world.schedules.last_ticks(&entries).await.unwrap()[0].is_none());
    for error in [
        world.schedules.pause("no").await.unwrap_err(),
        world.schedules.resume("no").await.unwrap_err(),
        world.schedules.run_now("no").await.unwrap_err(),
    ] {
        assert_eq!(*error.kind(), ErrorKind::Decode);
    }
    assert!(world.schedules.remove("no").await.unwrap());
    assert!(!world.schedules.remove("no").await.unwrap());
    assert_eq!(world.schedules.list().await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn no_number_of_changes_just_before_a_tick_loses_it() {
    let world = World::new().await;
    world.schedules.put("a", &minutely()).await.unwrap();
    for change in 0..12 {
        world.run_for(Duration::from_secs(1)).await;
        assert_eq!(world.target.queue().stats().await.unwrap().scheduled, 1, "{change}");
        assert!(world.schedules.pause("a").await.unwrap());
        assert_eq!(world.target.queue().stats().await.unwrap().scheduled, 0, "{change}");
        assert!(world.schedules.resume("a").await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn a_tick_that_was_sent_late_and_handled_takes_no_later_one_with_it() {
    let world = World::new().await;
    let spec = Spec::every(HOUR * 24, "work").unwrap().payload("tick").unwrap();
    let spec = spec.overlap(Overlap::Skip).grace(HOUR * 24).unwrap();
    world.schedules.put("a", &spec).await.unwrap();
    for hours in [24 + 13, 11] {
        world.test.advance(HOUR * hours);
        world.run_for(Duration::ZERO).await;
        let workers = world.test.workers().add(&world.target, |_| ready(Ok::<_, io::Error>(())));
        assert_eq!(workers.drain_due().await.count(Status::Acked), 1);
    }
    assert_eq!(minutes(&world), [24 * 60, 48 * 60]);
}

#[tokio::test(start_paused = true)]
async fn a_change_of_content_revives_no_cancelled_message() {
    let world = World::new().await;
    let spec = minutely().lead(MINUTE * 3).unwrap();
    world.schedules.put("a", &spec).await.unwrap();
    world.run_for(Duration::ZERO).await;
    world.schedules.pause("a").await.unwrap();
    world.schedules.resume("a").await.unwrap();
    world.run_for(Duration::ZERO).await;
    let sent = world.target.sent();
    assert_eq!(sent.len(), 6, "three are cancelled");
    // As by an operator.
    world.target.queue().cancel(sent[5].id().clone()).await.unwrap();
    world.schedules.put("a", &spec.payload("new").unwrap()).await.unwrap();
    let stats = world.target.queue().stats().await.unwrap();
    assert_eq!((stats.scheduled, stats.totals.replaced), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn while_the_queue_of_schedules_is_paused_only_what_exists_is_delivered() {
    let world = World::new().await;
    world.schedules.put("a", &minutely().lead(MINUTE * 2).unwrap()).await.unwrap();
    world.run_for(MINUTE).await;
    assert_eq!(minutes(&world), [1, 2, 3]);
    world.own.queue().pause().await.unwrap();
    world.run_for(MINUTE * 9).await;
    assert_eq!(minutes(&world), [1, 2, 3]);
    world.own.queue().resume().await.unwrap();
    world.run_for(Duration::ZERO).await;
    // It is minute 10: that one is made up for, and those of the lead follow.
    assert_eq!(minutes(&world), [1, 2, 3, 10, 11, 12]);
}

#[tokio::test(start_paused = true)]
async fn a_schedule_whose_message_was_removed_is_declared_again_without_a_second_tick() {
    let world = World::new().await;
    let all = || [("a", minutely().lead(MINUTE * 3).unwrap())];
    world.schedules.declare("shop", all()).await.unwrap();
    world.run_for(Duration::ZERO).await;
    assert_eq!(minutes(&world), [1, 2, 3]);
    // As by an operator who cancels in the wrong queue.
    world.own.queue().cancel("shop/a").await.unwrap();
    assert_eq!(world.schedules.list().await.unwrap(), []);
    assert!(world.schedules.get("shop/a").await.unwrap().is_none());
    let declared = world.schedules.declare("shop", all()).await.unwrap();
    assert_eq!((declared.created, declared.unchanged), (1, 0));
    world.run_for(MINUTE).await;
    assert_eq!(minutes(&world), [1, 2, 3, 4]);
}

#[tokio::test(start_paused = true)]
async fn owners_with_one_name_of_a_schedule_do_not_touch_each_other() {
    let world = World::new().await;
    let all = || [("a", minutely())];
    for owner in ["shop", "depot"] {
        assert_eq!(world.schedules.declare(owner, all()).await.unwrap().created, 1);
    }
    world.run_for(MINUTE).await;
    assert_eq!(minutes(&world), [1, 1, 2, 2]);
    world.schedules.declare("shop", <[(&str, Spec); 0]>::default()).await.unwrap();
    let left: Vec<_> = world.target.sent().iter().map(|sent| sent.id().to_string()).collect();
    assert!(left.iter().any(|id| id.starts_with("depot/a@")), "{left:?}");
    world.run_for(MINUTE * 2).await;
    let stats = world.target.queue().stats().await.unwrap();
    // The first tick of both, and the later ones of one: what was ahead of the other is cancelled.
    assert_eq!((stats.ready, stats.scheduled), (4, 1));
}

#[tokio::test(start_paused = true)]
async fn a_schedule_in_an_unknown_zone_stays_for_a_scheduler_that_knows_it() {
    let world = World::new().await;
    world.schedules.put("known", &minutely()).await.unwrap();
    // As a program writes it whose zone data are newer.
    let raw: Queue<Bytes, Raw> =
        world.test.connection().queue("schedules").await.unwrap().codec(Raw);
    let newer = r#"{"cron":"* * * * *","zone":"Mars/Olympus","queue":"work","payload":null}"#;
    let newer = raw.message(&Bytes::from_static(newer.as_bytes())).id("newer");
    assert!(
        newer
            .max_failures(delayline::limits::MAX_ATTEMPT_LIMIT)
            .send()
            .await
            .unwrap()
            .is_accepted()
    );
    world.run_for(MINUTE * 30).await;
    assert_eq!(minutes(&world), (1..=31).collect::<Vec<_>>());
    let stats = world.own.queue().stats().await.unwrap();
    assert_eq!((stats.dead, stats.scheduled + stats.ready), (0, 2));
}

/// Such as one with older zone data.
#[tokio::test(start_paused = true)]
async fn a_scheduler_that_fails_a_schedule_leaves_its_ticks_to_others() {
    for lead in [Duration::ZERO, SECOND * 10] {
        let world = World::new().await;
        world.schedules.put("a", &minutely().lead(lead).unwrap()).await.unwrap();
        world.run_for(MINUTE * 2).await;
        world.test.advance(MINUTE - lead);
        let fails = |_: Job<Spec>| ready(Err::<(), _>("an unknown zone"));
        let drained = world.test.workers().add(&world.own, fails).drain_due().await;
        assert_eq!(drained.count(Status::Scheduled), 1);
        world.run_for(MINUTE * 2).await;
        assert_eq!(minutes(&world), [1, 2, 3, 4, 5]);
    }
}

/// A scheduler has claimed the schedule that is due, and does nothing more.
async fn claimed(world: &World) -> Job<Spec> {
    let worker = world.schedules.worker().build().unwrap();
    let (claimed, mut jobs) = tokio::sync::mpsc::unbounded_channel();
    let run = worker.run(move |job: Job<Spec>| {
        let _ = claimed.send(job);
        pending::<Result<Outcome, Infallible>>()
    });
    let run = tokio::spawn(run);
    let job = jobs.recv().await.unwrap();
    run.abort();
    job
}

async fn handle_due(world: &World) -> usize {
    let workers = world.test.workers().add(&world.target, |_| ready(Ok::<_, io::Error>(())));
    workers.drain_due().await.count(Status::Acked)
}

#[tokio::test(start_paused = true)]
async fn a_scheduler_that_was_suspended_for_hours_sends_no_tick_again() {
    for (interval, suspended) in [(SECOND * 2, HOUR / 2), (MINUTE, HOUR * 3), (HOUR, HOUR * 6)] {
        let world = World::new().await;
        let spec = Spec::every(interval, "work").unwrap().payload("tick").unwrap();
        world.schedules.put("a", &spec.lead(Duration::ZERO).unwrap()).await.unwrap();
        world.test.advance(interval);
        let job = claimed(&world).await;
        world.test.advance(SECOND);
        world.run_for(Duration::ZERO).await;
        assert_eq!(handle_due(&world).await, 1);
        world.test.advance(suspended - SECOND * 2);
        world.schedules.handler()(job).await.unwrap();
        assert_eq!(world.ticks(), [interval.as_secs()]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_schedule_leaves_nearly_all_throttled_ids_to_its_target() {
    for (interval, most) in [(SECOND, 260), (MINUTE, 201), (HOUR, 7)] {
        let world = World::new().await;
        let spec = Spec::every(interval, "work").unwrap().payload("tick").unwrap();
        world.schedules.put("a", &spec).await.unwrap();
        world.run_for(interval * 300).await;
        let (sent, now) = (world.target.sent(), world.test.now());
        assert!(sent.len() >= 300);
        let window = |it: &SentMessage<_>| Duration::from(it.message().throttle.unwrap());
        let throttled = sent.iter().filter(|it| it.sent_at() + window(it) > now).count();
        assert!((5..=most).contains(&throttled), "{interval:?}: {throttled}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_put_that_is_repeated_completes_the_change() {
    let world = World::new().await;
    let spec = minutely().lead(MINUTE * 3).unwrap();
    world.schedules.put("a", &spec).await.unwrap();
    world.run_for(MINUTE - SECOND).await;
    world.test.advance(SECOND);
    claimed(&world).await;
    let spec = spec.payload("new").unwrap();
    let dropped = timeout(SECOND, world.schedules.put("a", &spec)).await;
    assert!(dropped.is_err(), "it waits for the scheduler that holds the schedule");
    world.test.advance(SECOND);
    world.run_for(Duration::ZERO).await;
    let get = async |minute: u64| {
        let id = format!("a@{}", START_MS + minute * 60_000);
        let found = world.target.queue().get(id).await.unwrap();
        let Found::Live(message) = found else { panic!("{minute} is gone") };
        message.payload
    };
    assert_eq!([get(2).await, get(3).await, get(4).await], ["tick", "tick", "new"]);
    assert_eq!(world.schedules.put("a", &spec).await.unwrap(), Put::Unchanged);
    assert_eq!([get(2).await, get(3).await, get(4).await], ["new"; 3]);
}

#[tokio::test(start_paused = true)]
async fn a_removal_that_is_dropped_while_a_scheduler_holds_the_schedule_cancels_what_is_ahead() {
    let world = World::new().await;
    world.schedules.put("a", &minutely().lead(MINUTE * 3).unwrap()).await.unwrap();
    world.run_for(MINUTE - SECOND).await;
    world.test.advance(SECOND);
    claimed(&world).await;
    let dropped = timeout(SECOND, world.schedules.remove("a")).await;
    assert!(dropped.is_err(), "it waits for the scheduler that holds the schedule");
    world.test.advance(SECOND);
    world.run_for(Duration::ZERO).await;
    assert!(!world.schedules.remove("a").await.unwrap());
    assert_eq!(world.target.queue().stats().await.unwrap().scheduled, 0);
}

#[tokio::test(start_paused = true)]
async fn a_change_while_a_scheduler_holds_the_schedule_loses_no_later_tick() {
    for interval in [MINUTE, MINUTE * 30] {
        let world = World::new().await;
        let spec = Spec::every(interval, "work").unwrap().payload("old").unwrap();
        world.schedules.put("a", &spec).await.unwrap();
        world.test.advance(MINUTE * 29);
        claimed(&world).await;
        world.test.advance(SECOND / 2);
        assert!(timeout(SECOND, world.schedules.put("a", &minutely())).await.is_err());
        world.test.advance(SECOND);
        world.run_for(MINUTE).await;
        assert_eq!(minutes(&world), [30, 31]);
        world.target.sent()[0].assert_payload(&"tick".to_owned());
    }
}

/// As if a queue with much traffic had forgotten it.
#[tokio::test(start_paused = true)]
async fn a_tick_whose_cancelled_message_is_forgotten_gets_another_one() {
    let world = World::new().await;
    let queue = world.target.queue();
    let id = format!("a@{}", START_MS + 4 * 3_600_000);
    let sent = queue.message(&"tick".to_owned()).id(id.as_str()).throttle(HOUR * 5).send().await;
    assert!(sent.unwrap().is_accepted());
    queue.cancel(id).await.unwrap();
    world.test.advance(HOUR * 4 - SECOND);
    world.schedules.put("a", &minutely()).await.unwrap();
    world.run_for(Duration::ZERO).await;
    assert_eq!(queue.stats().await.unwrap().scheduled, 1);
}

#[cfg(any(feature = "redis", feature = "fred"))]
mod on_servers {
    use std::collections::BTreeSet;

    use delayline::relay::{Destination, DestinationKey};
    use delayline::worker::WorkerHandle;
    use delayline::{Connect, Connection, RedisClient, Worker};
    use delayline_test_server::{Cluster, Server};
    use tokio::sync::mpsc;
    use tokio::task::JoinHandle;
    use tokio::time::sleep;

    use super::*;

    const DRIVERS: &[RedisClient] = &[
        #[cfg(feature = "redis")]
        RedisClient::Redis,
        #[cfg(feature = "fred")]
        RedisClient::Fred,
    ];

    async fn connect(url: &str, driver: RedisClient) -> Connection {
        Connect::new(url).unwrap().client(driver).connect().await.unwrap()
    }

    struct Scheduler {
        handle: WorkerHandle,
        task: JoinHandle<()>,
    }

    impl Scheduler {
        fn start(schedules: &Schedules) -> Self {
            let worker = schedules.worker().build().unwrap();
            let (handle, run) = (worker.handle(), worker.run(schedules.handler()));
            let task = tokio::spawn(async {
                run.await;
            });
            Self { handle, task }
        }

        async fn stop(self) {
            self.handle.stop(SECOND);
            self.task.await.unwrap();
        }
    }

    async fn sent(queue: &Queue<String>) -> u64 {
        let call = async || queue.stats().await.map(|stats| stats.totals.enqueued);
        let answered = async {
            loop {
                // The cluster may fail calls for a moment after a node was away.
                if let Ok(count) = call().await {
                    return count;
                }
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(Duration::from_secs(60), answered).await.expect("the queue cannot be counted")
    }

    async fn until_sent(queue: &Queue<String>, count: u64) {
        let met = async {
            while sent(queue).await < count {
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(Duration::from_secs(60), met).await.expect("no ticks");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_target_on_a_full_or_silent_node_holds_up_no_other() {
        futures_util::future::join_all(DRIVERS.iter().map(|&driver| in_a_cluster(driver))).await;
    }

    async fn in_a_cluster(driver: RedisClient) {
        let cluster = Cluster::start();
        let [first, second, third] = cluster.nodes() else { panic!("three nodes") };
        for node in cluster.nodes() {
            node.command(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]);
        }
        let named = |node: &Server, what: &str| {
            let is_there =
                |name: &String| std::ptr::eq(cluster.owner(first, cluster.slot(name)), node);
            (0..).map(|number| format!("{what}-{number}")).find(is_there).unwrap()
        };
        let connection = connect(&cluster.url_of(&[first, third]), driver).await;
        let own = named(first, "schedules");
        let schedules = Schedules::open_named(&connection, &own).await.unwrap().patience(SECOND);
        let (troubled, well) = (named(second, "work"), named(third, "work"));
        for queue in [&troubled, &well] {
            let spec = Spec::every(SECOND, queue).unwrap().lead(Duration::ZERO).unwrap();
            schedules.put(queue, &spec).await.unwrap();
        }
        let troubled: Queue<String> = connection.queue(&troubled).await.unwrap();
        let well: Queue<String> = connection.queue(&well).await.unwrap();
        let scheduler = Scheduler::start(&schedules);
        until_sent(&troubled, 2).await;
        until_sent(&well, 2).await;

        for is_full in [true, false] {
            let before = sent(&well).await;
            if is_full {
                second.command(&["CONFIG", "SET", "maxmemory", "1"]);
            } else {
                second.pause();
            }
            until_sent(&well, before + 2).await;
            if is_full {
                second.command(&["CONFIG", "SET", "maxmemory", "0"]);
            } else {
                second.resume();
            }
            // Its latest tick and those that follow.
            until_sent(&troubled, sent(&troubled).await + 2).await;
        }
        scheduler.stop().await;
        for queue in [&troubled, &well] {
            // No id is a second one for an instant.
            let mut pages = queue.list(delayline::admin::Listed::Ready);
            let mut ticks = BTreeSet::new();
            while let Some(page) = pages.next_page().await.unwrap() {
                for info in page {
                    let id = info.id.to_string();
                    let tick: u64 = id.split_once('@').unwrap().1.parse().unwrap();
                    assert!(ticks.insert(tick), "{id}");
                }
            }
            assert_eq!(u64::try_from(ticks.len()).unwrap(), sent(queue).await);
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_relayed_schedule_is_gone_until_it_is_put_again() {
        for &driver in DRIVERS {
            let server = Server::start();
            let connection = connect(&server.url(), driver).await;
            let schedules = Schedules::open(&connection).await.unwrap();
            let spec = Spec::every(SECOND, "work").unwrap();
            schedules.put("a", &spec).await.unwrap();
            let to =
                Destination::List { key: DestinationKey::try_from("due").unwrap(), max_len: None };
            let relay = schedules.queue().relay(to).until_empty(true);
            assert_eq!(relay.run().await.unwrap().relayed, 1);
            assert!(schedules.get("a").await.unwrap().is_none());
            assert!(!schedules.pause("a").await.unwrap() && !schedules.remove("a").await.unwrap());
            assert_eq!(schedules.put("a", &spec).await.unwrap(), Put::Created);
            let work: Queue<String> = connection.queue("work").await.unwrap();
            let scheduler = Scheduler::start(&schedules);
            until_sent(&work, 2).await;
            scheduler.stop().await;
        }
    }

    /// All steps are smaller than the lead, so no tick is jumped over.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_clock_that_steps_back_and_forth_neither_doubles_nor_loses_a_tick() {
        futures_util::future::join_all(DRIVERS.iter().map(|&driver| steps(driver))).await;
    }

    async fn steps(driver: RedisClient) {
        let server = Server::builder().own_clock().start();
        let connection = connect(&server.url(), driver).await;
        let schedules = Schedules::open(&connection).await.unwrap();
        let spec = Spec::every(SECOND, "work").unwrap().lead(SECOND * 60).unwrap();
        schedules.put("a", &spec).await.unwrap();
        let scheduler = Scheduler::start(&schedules);
        let work: Queue<Bytes, Raw> = connection.queue("work").await.unwrap().codec(Raw);
        let (handled, mut ticks) = mpsc::unbounded_channel();
        // The clock may go through all steps before an ack arrives, and no lease may expire by
        // that.
        let worker = Worker::builder(work.clone()).lease(MINUTE).build().unwrap();
        let stop = worker.handle();
        let worker = tokio::spawn(worker.run(move |job: Job<Bytes>| {
            let id = job.id().to_string();
            handled.send(id.split_once('@').unwrap().1.parse::<u64>().unwrap()).unwrap();
            ready(Ok::<_, io::Error>(()))
        }));
        let mut seen = Vec::new();
        for step in [0, 4_000, 2_500, 20_000, 18_000, 19_999, 45_000, 43_000, 45_000] {
            server.set_clock_step(step);
            for _ in 0..2 {
                let next = timeout(Duration::from_secs(30), ticks.recv()).await;
                seen.push(next.expect("no tick is delivered").unwrap());
            }
        }
        scheduler.stop().await;
        stop.stop(SECOND);
        worker.await.unwrap();
        while let Ok(tick) = ticks.try_recv() {
            seen.push(tick);
        }
        seen.sort_unstable();
        for pair in seen.windows(2) {
            assert_eq!(pair[1] - pair[0], 1_000, "{driver:?}: {seen:?}");
        }
    }
}
