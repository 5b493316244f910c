//! Waiting for messages to end.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use delayline_core::limits::MAX_BATCH;
use delayline_core::{At, Backoff, Completion, ErrorKind, MessageId, Op, QueueBackend, Reply};
use delayline_redis_protocol::runtime;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use crate::Error;
use crate::client::{BACKOFF, Client, Tries, bounded};
use crate::telemetry::{self, Label};

/// The callers of one process that wait for messages of one queue.
///
/// One task polls for all of them, and ends with the last waiter. It polls a message at once, and
/// then each time the wait has grown by an eighth, down to once a second. So the delay of a
/// notification is proportional to the wait, and doubling the wait costs six more polls.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waiters(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    /// A waiter has arrived.
    arrived: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    /// By when they are looked for next.
    waiters: BTreeMap<(Instant, u64), Waiter>,
    next_number: u64,
    /// The task that looks, if there is one: the number of the waiter that has started it, and when
    /// it was last active.
    looker: Option<(u64, Instant)>,
}

#[derive(Debug)]
struct Waiter {
    id: MessageId,
    since: Instant,
    until: Instant,
    patience: Duration,
    /// Its failed looks since the latest reply.
    tries: Option<Tries>,
    answer: watch::Sender<Seen>,
}

/// What the latest look has found.
#[derive(Clone, Debug)]
enum Seen {
    Nothing,
    /// The message was pending at this instant, and the wait continues.
    Pending(Instant),
    Answer(Result<Completion, Error>),
}

impl Waiters {
    /// Waits until the message is no longer pending, or until the limit. A query that was sent by
    /// then has [`LAST_REPLY`] to be answered, and the first one [`FIRST_REPLY`].
    ///
    /// # Errors
    ///
    /// The error of a query, or that the server has not replied for too long, or that there is no
    /// runtime.
    pub(crate) async fn wait(
        &self,
        client: &Client,
        id: MessageId,
        limit: Duration,
    ) -> Result<Completion, Error> {
        let runtime = runtime()?;
        let since = Instant::now();
        let until = since + limit.min(LONGEST_WAIT);
        let end = (until + LAST_REPLY).max(since + FIRST_REPLY);
        loop {
            let (answer, mut receiver) = watch::channel(Seen::Nothing);
            let (id, patience) = (id.clone(), client.patience());
            let waiter = Waiter { id, since, until, patience, tries: None, answer };
            let (looker, leads) = self.0.lock().enter(waiter);
            if leads {
                // A task that was silent takes no more notifications.
                self.0.arrived.notify_waiters();
                let look = Look::of(&self.0, looker);
                let queue = Arc::downgrade(&client.backend);
                runtime.spawn(look.for_all(queue, client.label().clone()));
            }
            self.0.arrived.notify_one();
            if let Some(answer) = self.answer(&mut receiver, looker, end).await {
                return answer;
            }
        }
    }

    /// The answer, or none if that task does not look any more: its runtime has ended, or is not
    /// being run, as can happen between two calls of `block_on`.
    async fn answer(
        &self,
        receiver: &mut watch::Receiver<Seen>,
        looker: u64,
        end: Instant,
    ) -> Option<Result<Completion, Error>> {
        let is_answer = |seen: &Seen| matches!(seen, Seen::Answer(_));
        loop {
            let until = end.min(Instant::now() + LONGEST_SILENCE);
            let seen = timeout_at(until, receiver.wait_for(is_answer)).await;
            match seen.map(|seen| seen.map(|seen| seen.clone())) {
                Ok(seen) => return Some(at_the_limit(&seen.ok()?)),
                Err(_) if until == end => return Some(at_the_limit(&receiver.borrow())),
                Err(_) if self.0.lock().looker() == Some(looker) => {}
                Err(_) => return None,
            }
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Nothing panics while it is locked.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// Returns the number of the task that looks, and whether the caller has to start it.
    fn enter(&mut self, waiter: Waiter) -> (u64, bool) {
        let now = Instant::now();
        self.put(now, waiter);
        if let Some(looker) = self.looker() {
            return (looker, false);
        }
        self.looker = Some((self.next_number, now));
        (self.next_number, true)
    }

    fn put(&mut self, next_look: Instant, waiter: Waiter) {
        self.next_number += 1;
        self.waiters.insert((next_look, self.next_number), waiter);
    }

    /// Notes that a task is active. Returns `false` if another task looks now.
    fn continues(&mut self, number: u64) -> bool {
        let now = Instant::now();
        let (looker, at) = self.looker.get_or_insert((number, now));
        let continues = *looker == number;
        if continues {
            *at = now;
        }
        continues
    }

    /// The number of the task that looks, unless its runtime is not being run.
    fn looker(&self) -> Option<u64> {
        self.looker.filter(|(_, at)| at.elapsed() < LONGEST_SILENCE).map(|(number, _)| number)
    }

    /// Takes the waiters whose messages have to be queried now, as many as fit in one operation.
    fn due(&mut self, now: Instant) -> BTreeMap<MessageId, Vec<Waiter>> {
        let mut due = BTreeMap::<_, Vec<_>>::new();
        while due.len() < MAX_BATCH
            && let Some(first) = self.waiters.first_entry().filter(|first| first.key().0 <= now)
        {
            let waiter = first.remove();
            if waiter.answer.receiver_count() > 0 {
                due.entry(waiter.id.clone()).or_default().push(waiter);
            }
        }
        due
    }
}

/// The task that looks. If its runtime ends or is not being run, the waiting callers start another
/// one.
struct Look {
    shared: Arc<Shared>,
    number: u64,
    over: bool,
    /// When the waiters whose looks have failed are looked for again: all at once.
    retry_at: Instant,
    backoff: Backoff,
}

impl Look {
    fn of(shared: &Arc<Shared>, number: u64) -> Self {
        let (shared, retry_at) = (Arc::clone(shared), Instant::now());
        Self { shared, number, over: false, retry_at, backoff: BACKOFF }
    }

    /// The task must not keep a queue open that its callers have dropped.
    async fn for_all(mut self, queue: Weak<dyn QueueBackend>, label: Label) {
        while let Some(next) = self.next() {
            tokio::select! {
                () = sleep_until(next) => {}
                () = self.shared.arrived.notified() => continue,
            }
            let due = self.shared.lock().due(Instant::now());
            if !due.is_empty() {
                let Some(queue) = queue.upgrade() else { return };
                self.look(queue, &label, due).await;
            }
        }
    }

    /// When to look next. After `None`, another task has to.
    fn next(&mut self) -> Option<Instant> {
        let mut waiting = self.shared.lock();
        self.over = !waiting.continues(self.number);
        if self.over {
            return None;
        }
        let next = waiting.waiters.first_key_value().map(|((next, _), _)| *next);
        if next.is_none() {
            self.over = true;
            waiting.looker = None;
        }
        next
    }

    /// Drops the queue before the answers, so that a caller who then drops it has closed it.
    async fn look(
        &mut self,
        queue: Arc<dyn QueueBackend>,
        label: &Label,
        due: BTreeMap<MessageId, Vec<Waiter>>,
    ) {
        let began = Instant::now();
        let op = Op::Progress(due.keys().cloned().collect());
        let applied = {
            let mut call = queue.apply(At::Server, &op);
            loop {
                match timeout(LONGEST_PAUSE, &mut call).await {
                    Ok(applied) => break applied,
                    Err(_) if self.shared.lock().continues(self.number) => {}
                    // The waiting callers have turned to another task.
                    Err(_) => return,
                }
            }
        };
        let told = match applied {
            Ok(applied) => match applied.reply {
                Reply::Progress(told) if !told.is_empty() => Ok(told),
                _ => Err(Error::unexpected_reply().into()),
            },
            Err(error) => Err(error),
        };
        drop(queue);
        let now = Instant::now();
        if told.is_ok() {
            self.backoff.reset();
        } else if self.retry_at <= now {
            self.retry_at = now + self.backoff.next(fastrand::u32(..));
        }
        let mut is_repeated = false;
        let mut waiting = self.shared.lock();
        for (n, mut waiter) in due
            .into_values()
            .enumerate()
            .flat_map(|(n, all)| all.into_iter().map(move |waiter| (n, waiter)))
        {
            let answer = match &told {
                Ok(told) => match told.get(n) {
                    // Results would have been too many: at once again.
                    None => {
                        waiting.put(now, waiter);
                        continue;
                    }
                    Some(Completion::Pending) if now < waiter.until => {
                        waiter.tries = None;
                        waiter.answer.send_replace(Seen::Pending(now));
                        waiting.put(next_look(now, &waiter), waiter);
                        continue;
                    }
                    Some(progress) => Ok(progress.clone()),
                },
                Err(error) => {
                    let give_up = began + bounded(waiter.patience);
                    let tries = waiter.tries.get_or_insert_with(|| Tries::until(give_up));
                    match tries.failed_until(error.clone(), self.retry_at) {
                        Ok(()) => {
                            is_repeated = true;
                            waiting.put(self.retry_at, waiter);
                            continue;
                        }
                        Err(error) => Err(error),
                    }
                }
            };
            waiter.answer.send_replace(Seen::Answer(answer));
        }
        drop(waiting);
        if is_repeated {
            telemetry::repeated(label, op.name());
        }
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        if !self.over {
            let mut waiting = self.shared.lock();
            if waiting.continues(self.number) {
                waiting.looker = None;
                waiting.waiters.clear();
            }
        }
    }
}

/// The answer to a caller whose last look was not answered in time.
fn at_the_limit(seen: &Seen) -> Result<Completion, Error> {
    match seen {
        Seen::Answer(answer) => answer.clone(),
        Seen::Pending(at) if at.elapsed() <= RECENT => Ok(Completion::Pending),
        Seen::Nothing | Seen::Pending(_) => Err(Error::from(delayline_core::Error::with_detail(
            ErrorKind::Timeout,
            "no reply before the limit of the wait",
        ))),
    }
}

fn next_look(now: Instant, waiter: &Waiter) -> Instant {
    let pause = (now.duration_since(waiter.since) / 8).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
    waiter.until.min(now + pause)
}

const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Maximum time from the limit of a wait to its end.
const LAST_REPLY: Duration = Duration::from_millis(100);
/// Minimum time for the reply to the first look, whatever the limit.
const FIRST_REPLY: Duration = Duration::from_secs(1);
/// Maximum age of a reply that still answers a caller at the limit: two pauses, the time after the
/// limit, and some for the replies.
const RECENT: Duration = Duration::from_millis(2_500);
/// How long a task that looks is inactive at most: much longer than [`LONGEST_PAUSE`].
const LONGEST_SILENCE: Duration = Duration::from_secs(4);
/// Long enough, and no instant overflows.
const LONGEST_WAIT: Duration = Duration::from_secs(365 * 24 * 3_600);
