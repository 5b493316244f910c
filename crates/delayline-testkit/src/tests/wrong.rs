//! Backends that apply operations like the model, with a wrong clock, hint or call.

use std::future::pending;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use async_trait::async_trait;
use delayline_core::{
    Applied, At, Backend, Change, Durability, Error, ErrorKind, Millis, Op, QueueBackend,
    QueueName, State, Timestamp, Wakeup,
};
use tokio::runtime::Builder;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::model::instant;
use super::{SETTINGS, failures};
use crate::{Fixture, cases};

/// The defect of such a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    Nothing,
    WholeSeconds,
    LocalTime,
    /// All hints but those of new messages reach only the process of their sender.
    HintsStayInTheirProcess,
    SettlementsThatClaimNextGiveNoHint,
    WaitsHoldALock,
    DurableCallsAreNotChecked,
    RatesNeedFixedInstants,
    CancellationsHang,
    /// This is allowed.
    TheFirstWaitFails,
}

/// The queues of such a backend.
struct Queues {
    wrong: Wrong,
    shared: Mutex<Vec<Arc<Shared>>>,
}

/// A queue, and the bell of each client.
#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    bells: Mutex<Vec<Arc<Notify>>>,
}

impl Queues {
    fn new(wrong: Wrong) -> Self {
        Self { wrong, shared: Mutex::default() }
    }

    fn open(&self, number: usize) -> Arc<dyn QueueBackend> {
        let shared = Arc::clone(&self.shared.lock().unwrap()[number]);
        let bell = Arc::new(Notify::new());
        shared.bells.lock().unwrap().push(Arc::clone(&bell));
        let name = QueueName::new(number.to_string()).unwrap();
        let (waiting, has_waited) = (tokio::sync::Mutex::default(), AtomicBool::default());
        Arc::new(Client { wrong: self.wrong, name, shared, bell, waiting, has_waited })
    }
}

#[async_trait]
impl Fixture for Queues {
    async fn fresh(&self) -> Result<Arc<dyn QueueBackend>, Error> {
        let mut shared = self.shared.lock().unwrap();
        shared.push(Arc::default());
        let number = shared.len() - 1;
        drop(shared);
        Ok(self.open(number))
    }

    async fn another(
        &self,
        queue: &Arc<dyn QueueBackend>,
    ) -> Result<Option<Arc<dyn QueueBackend>>, Error> {
        Ok(Some(self.open(queue.queue_name().unwrap().as_str().parse().unwrap())))
    }

    fn case_time(&self) -> Duration {
        Duration::from_secs(if self.wrong == Wrong::CancellationsHang { 1 } else { 60 })
    }
}

#[derive(Debug)]
struct Client {
    wrong: Wrong,
    name: QueueName,
    shared: Arc<Shared>,
    bell: Arc<Notify>,
    waiting: tokio::sync::Mutex<()>,
    has_waited: AtomicBool,
}

impl Client {
    fn now(&self) -> Timestamp {
        let now = instant(At::Server);
        match self.wrong {
            Wrong::WholeSeconds => Timestamp::from_ms(now.as_ms() / 1_000 * 1_000).unwrap(),
            Wrong::LocalTime => now.after(Millis::saturating(3_600_000)),
            _ => now,
        }
    }

    fn execute(&self, at: At, op: &Op) -> Applied {
        let mut state = self.shared.state.lock().unwrap();
        let now = if let At::Fixed(at) = at { at } else { self.now() };
        let mut op = op.clone();
        if let (Wrong::RatesNeedFixedInstants, At::Server, Op::SetLimits(set)) =
            (self.wrong, at, &mut op)
        {
            set.rate = Change::Keep;
        }
        let (applied, mut hint) = state.apply_and_hint(now, &op);
        drop(state);
        hint &= self.wrong != Wrong::SettlementsThatClaimNextGiveNoHint || !op.claims_next();
        let stays = self.wrong == Wrong::HintsStayInTheirProcess && op.name() != "enqueue";
        if hint && stays {
            self.bell.notify_one();
        } else if hint {
            self.shared.bells.lock().unwrap().iter().for_each(|bell| bell.notify_one());
        }
        applied
    }
}

#[async_trait]
impl Backend for Client {
    async fn apply(&self, at: At, op: &Op) -> Result<Applied, Error> {
        op.validate()?;
        if self.wrong == Wrong::CancellationsHang && op.name() == "cancel" {
            pending::<()>().await;
        }
        Ok(self.execute(at, op))
    }

    async fn apply_durably(
        &self,
        at: At,
        op: &Op,
        durability: Durability,
    ) -> Result<Applied, Error> {
        if self.wrong == Wrong::DurableCallsAreNotChecked {
            return Ok(self.execute(at, op));
        }
        durability.validate()?;
        self.apply(at, op).await
    }

    fn queue_name(&self) -> Option<&QueueName> {
        Some(&self.name)
    }
}

#[async_trait]
impl Wakeup for Client {
    async fn wait(&self, time: Duration) -> Result<bool, Error> {
        if self.wrong == Wrong::TheFirstWaitFails && !self.has_waited.swap(true, Ordering::Relaxed)
        {
            return Err(Error::new(ErrorKind::Unreachable));
        }
        let waits_alone = match self.wrong {
            Wrong::WaitsHoldALock => Some(self.waiting.lock().await),
            _ => None,
        };
        let hint = timeout(time, self.bell.notified()).await.is_ok();
        drop(waits_alone);
        Ok(hint)
    }

    async fn ring(&self) -> Result<(), Error> {
        self.bell.notify_one();
        Ok(())
    }
}

/// Checks which cases of some topics fail, by their names without guarantees.
fn assert_fails(topics: &[&str], wrong: Wrong, expected: &[&str]) {
    let cases: Vec<_> = cases::all().into_iter().map(|case| case.name).collect();
    let is_wanted = |case: &str| topics.contains(&case.split("::").next().unwrap());
    // At once, because many of them wait.
    let failed = thread::scope(|scope| {
        let run = |case| move || failures(Queues::new(wrong), |name| name.ends_with(case));
        let wanted = cases.into_iter().filter(|case| is_wanted(case));
        let running: Vec<_> = wanted.map(|case| scope.spawn(run(case))).collect();
        running.into_iter().flat_map(|running| running.join().unwrap()).collect::<Vec<_>>()
    });
    let failed = failed.iter().map(|name| name["cases::".len()..].split(' ').next().unwrap());
    assert_eq!(failed.collect::<Vec<_>>(), expected, "{wrong:?}");
}

#[test]
fn cases_show_wrong_clocks_and_rates() {
    let rates = "queue_limits::a_rate_holds_by_the_servers_clock";
    let counts = "clock::the_servers_clock_counts_milliseconds";
    assert_fails(&["clock", "queue_limits"], Wrong::Nothing, &[]);
    assert_fails(&["queue_limits"], Wrong::RatesNeedFixedInstants, &[rates]);
    assert_fails(&["clock"], Wrong::WholeSeconds, &[counts]);
    assert_fails(&["clock"], Wrong::LocalTime, &[counts]);
}

#[test]
fn cases_show_missing_hints() {
    let of_both = ["hints", "wakeup"];
    let own = "hints::what_can_be_claimed_sooner_rings";
    let others = "hints::what_can_be_claimed_sooner_rings_for_another_client";
    let of_limits = "hints::what_no_limit_holds_back_any_more_rings_for_another_client";
    let held_up = "wakeup::a_long_wait_holds_up_no_short_one";
    let rows: [(Wrong, &[&str]); 5] = [
        (Wrong::Nothing, &[]),
        (Wrong::TheFirstWaitFails, &[]),
        (Wrong::HintsStayInTheirProcess, &[others, of_limits]),
        (Wrong::SettlementsThatClaimNextGiveNoHint, &[own, others]),
        (Wrong::WaitsHoldALock, &[held_up]),
    ];
    thread::scope(|scope| {
        for (wrong, failed) in rows {
            scope.spawn(move || assert_fails(&of_both, wrong, failed));
        }
    });
}

#[test]
fn durable_calls_without_checks_are_found() {
    let wrong = Wrong::DurableCallsAreNotChecked;
    assert_fails(&["limits"], wrong, &["limits::what_is_refused_durably_changes_nothing"]);
    let random = ["differential::random_ops", "two_clients::random_ops"];
    assert_eq!(failures(Queues::new(wrong), |name| random.contains(&name)), random);
}

#[test]
fn calls_that_hang_are_found() {
    // Its clock moves only while everything waits.
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = Arc::new(runtime.unwrap());
    let queues = Queues::new(Wrong::CancellationsHang);
    let trials = crate::trials(runtime, queues, SETTINGS.cases, SETTINGS.seed);
    for (trial, shown) in [
        ("cases::cancel::a_cancelled_message_is_never_delivered", ["it did not end within 1s"; 2]),
        ("differential::random_ops", ["cancel did not end within 20s", ".trace:\n{"]),
        ("histories::concurrent_clients", ["cancel did not end within 20s", "round 0"]),
    ] {
        let (_, run) = trials.iter().find(|(name, _)| name.starts_with(trial)).unwrap();
        let panic = std::panic::catch_unwind(AssertUnwindSafe(run)).unwrap_err();
        let text = panic.downcast::<String>().unwrap();
        assert!(shown.iter().all(|shown| text.contains(shown)), "{trial}: {text}");
    }
}
