//! The workers that run over a connection, for operators.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use delayline_core::{ProcessId, QueueName, Timestamp};
use delayline_redis_protocol::{Transport, WorkerProcess};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};
use uuid::Uuid;

/// Returns the id of this process, with which all claim ids of its workers begin.
pub(crate) fn process_id() -> ProcessId {
    static ID: LazyLock<ProcessId> = LazyLock::new(|| {
        let [a, b, c, d, e, f, g, h, ..] = Uuid::new_v4().into_bytes();
        ProcessId::from_bytes([a, b, c, d, e, f, g, h])
    });
    *ID
}

/// The running workers of a connection's queues, or of a queue's clones. If the queues are on
/// servers, it introduces the workers there.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorkerRegistry(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    transport: Option<Arc<dyn Transport>>,
    registrations: Mutex<BTreeMap<u64, Running>>,
    next: AtomicU64,
    /// Since when a task is about to introduce the workers.
    planned: Mutex<Option<Instant>>,
    /// Held while they are introduced, so that the latest introduction counts.
    turn: tokio::sync::Mutex<()>,
}

/// The work of a run on one queue.
#[derive(Debug)]
struct Running {
    run: Uuid,
    slots: u32,
    queue: QueueName,
    handlers: u32,
    since: SystemTime,
}

/// The work of a run on one queue; it ends when this is dropped.
#[must_use]
pub(crate) struct Registration {
    registry: WorkerRegistry,
    number: u64,
}

impl WorkerRegistry {
    /// Creates a registry whose workers are introduced to the servers of a transport.
    pub(crate) fn on(transport: Option<Arc<dyn Transport>>) -> Self {
        Self(Arc::new(Inner { transport, ..Inner::default() }))
    }

    /// Adds the work of a run on a queue, with a maximum number of handlers. `run` has `slots` for
    /// all of its queues together.
    pub(crate) fn enter(
        &self,
        run: Uuid,
        slots: u32,
        queue: QueueName,
        handlers: u32,
    ) -> Registration {
        let number = self.0.next.fetch_add(1, Ordering::Relaxed);
        let running = Running { run, slots, queue, handlers, since: SystemTime::now() };
        self.registrations().insert(number, running);
        self.introduce();
        Registration { registry: self.clone(), number }
    }

    /// Returns this process, if it has workers on these queues.
    pub(crate) fn process(&self) -> Option<WorkerProcess> {
        let registrations = self.registrations();
        let since = registrations.values().map(|running| running.since).min()?;
        let since = Timestamp::try_from(since).unwrap_or(Timestamp::MIN);
        let version = env!("CARGO_PKG_VERSION");
        let mut process =
            WorkerProcess::new(process_id(), version, &host(), std::process::id(), since);
        let mut runs: BTreeMap<Uuid, (u32, u32)> = BTreeMap::new();
        for Running { run, slots, queue, handlers, .. } in registrations.values() {
            let (_, of_run) = runs.entry(*run).or_insert((*slots, 0));
            *of_run = of_run.saturating_add(*handlers);
            let of_queue = process.queues.entry(queue.clone()).or_default();
            *of_queue = of_queue.saturating_add(*handlers);
        }
        let handlers = runs.into_values().map(|(slots, handlers)| handlers.min(slots));
        process.handlers = handlers.fold(0, u32::saturating_add);
        Some(process)
    }

    /// Introduces the workers in a separate task. All changes before the task begins are one
    /// introduction.
    fn introduce(&self) {
        let Some(transport) = self.0.transport.clone() else { return };
        // A run can be dropped outside of its runtime. Its connections end with the runtime.
        let Ok(runtime) = Handle::try_current() else { return };
        {
            let mut planned = lock(&self.0.planned);
            if planned.is_some_and(|since| since.elapsed() < LONGEST_TURN) {
                return;
            }
            *planned = Some(Instant::now());
        }
        let (registry, plan) = (self.clone(), Plan(self.clone()));
        runtime.spawn(async move {
            let _turn = timeout(LONGEST_TURN, registry.0.turn.lock()).await;
            drop(plan);
            transport.introduce(registry.process().as_ref()).await;
        });
    }

    fn registrations(&self) -> MutexGuard<'_, BTreeMap<u64, Running>> {
        lock(&self.0.registrations)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it is locked.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// More than an introduction takes. Then the runtime of its task is not being run, as can happen
/// between two calls of `block_on`.
const LONGEST_TURN: Duration = Duration::from_secs(30);

impl Drop for Registration {
    fn drop(&mut self) {
        self.registry.registrations().remove(&self.number);
        self.registry.introduce();
    }
}

/// A task that is about to introduce the workers. A runtime that ends drops it unperformed, so that
/// a later change plans another one.
struct Plan(WorkerRegistry);

impl Drop for Plan {
    fn drop(&mut self) {
        *lock(&self.0.0.planned) = None;
    }
}

/// Returns the name of this machine.
fn host() -> String {
    hostname::get().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use bytes::Bytes;
    use delayline_redis_protocol::{CallError, ScriptCall, Value};
    use tokio::runtime::Builder;

    use super::*;

    #[test]
    fn handlers_are_counted_for_each_queue_and_within_the_slots_of_a_run() {
        let registry = WorkerRegistry::default();
        assert_eq!(registry.process(), None);
        let queue = |name| QueueName::new(name).unwrap();
        let (one, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let first = registry.enter(one, 16, queue("orders"), 16);
        let second = registry.enter(one, 16, queue("mails"), 4);
        let third = registry.enter(other, 10, queue("orders"), 10);
        let process = registry.process().unwrap();
        assert_eq!((process.id, process.handlers), (process_id(), 26));
        assert_eq!((process.queues[&queue("orders")], process.queues[&queue("mails")]), (26, 4));
        assert_eq!(process.pid, std::process::id());
        drop(first);
        assert_eq!(registry.process().unwrap().handlers, 14);
        drop((second, third));
        assert_eq!(registry.process(), None);
    }

    /// Counts introductions.
    #[derive(Debug, Default)]
    struct Introductions(AtomicU64);

    #[async_trait]
    impl Transport for Introductions {
        async fn call(&self, _: ScriptCall<'_>) -> Result<Value, CallError> {
            Ok(Value::Nil)
        }

        async fn wait(&self, _: &Bytes, _: Duration) -> Result<bool, CallError> {
            Ok(false)
        }

        async fn info(&self, _: &Bytes) -> Result<String, CallError> {
            Ok(String::new())
        }

        async fn introduce(&self, process: Option<&WorkerProcess>) {
            assert!(process.is_some());
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_runtime_that_ends_too_early_keeps_no_later_one_from_introducing_its_workers() {
        let transport = Arc::new(Introductions::default());
        let registry = WorkerRegistry::on(Some(Arc::clone(&transport) as _));
        let runtime = || Builder::new_current_thread().enable_time().build().unwrap();
        let enter = || registry.enter(Uuid::nil(), 1, QueueName::new("orders").unwrap(), 1);
        let ended = runtime();
        let first = ended.block_on(async { enter() });
        drop(ended);
        assert_eq!(transport.0.load(Ordering::Relaxed), 0, "its task has not begun");
        let second = runtime().block_on(async {
            let second = enter();
            tokio::task::yield_now().await;
            second
        });
        assert_eq!(transport.0.load(Ordering::Relaxed), 1);
        drop((first, second));
    }

    #[test]
    fn a_runtime_that_is_not_run_keeps_no_other_one_from_introducing_its_workers() {
        let transport = Arc::new(Introductions::default());
        let registry = WorkerRegistry::on(Some(Arc::clone(&transport) as _));
        let mut builder = Builder::new_current_thread();
        let [first, second] =
            [0, 1].map(|_| builder.enable_time().start_paused(true).build().unwrap());
        let enter = || registry.enter(Uuid::nil(), 1, QueueName::new("orders").unwrap(), 1);
        let _registrations = first.block_on(async { enter() });
        second.block_on(async {
            tokio::time::sleep(LONGEST_TURN).await;
            let _registrations = enter();
            tokio::task::yield_now().await;
        });
        assert_eq!(transport.0.load(Ordering::Relaxed), 1);
    }
}
