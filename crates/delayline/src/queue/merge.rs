//! Groups concurrent sends into one operation.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use delayline_core::{Durability, ErrorKind, NewMessage};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout_at};
use tracing::{Instrument, Span};

use super::enqueue::{Answered, Group, Turn, enqueue};
use super::sent::Sent;
use crate::batches::fitting;
use crate::client::Client;
use crate::{Error, telemetry};

/// The sends of one process that wait while a group of others is being sent.
///
/// The first send starts at once. Sends that arrive in the meantime wait for its reply. Then as
/// many as fit in one operation form the next group, in order of arrival. So a single send never
/// waits, and the more there are, the larger the groups.
///
/// A task sends the groups and ends after the last one, so that a caller that gives up takes
/// nothing from the others. Only one group is sent at a time: a second one could overtake the first
/// when the first has to be repeated.
///
/// Each caller gives up at its own time, while the others of its group are sent again. One that
/// waits for a group that fails gets the error of that group: thousands may wait, and each call of
/// theirs would fail for the same reason.
///
/// Sends of different durabilities are in different groups, and so are sends to different shards: a
/// shard that does not reply holds up no others.
#[derive(Clone, Debug)]
pub(crate) struct Merger {
    durability: Durability,
    /// For the first shard, or for the whole queue.
    waiting: Shared,
    all: Arc<Mutex<BTreeMap<(Durability, usize), Shared>>>,
}

type Shared = Arc<Mutex<Waiting>>;

#[derive(Debug, Default)]
struct Waiting {
    /// In the order in which they arrived.
    entries: BTreeMap<u64, Entry>,
    next_number: u64,
    bytes: usize,
    /// Sends the next group; `None` if nothing waits. Groups take it from here, because the task
    /// must not keep a queue open that its callers have dropped.
    client: Option<Client>,
    /// The task that sends, if there is one: the number of the send that has started it, and when
    /// it last began or ended an operation.
    sender: Option<(u64, Instant)>,
}

/// A message that waits for its group.
#[derive(Debug)]
struct Entry {
    message: NewMessage,
    caller: Caller,
}

/// The caller to answer.
#[derive(Debug)]
struct Caller {
    number: u64,
    give_up: Instant,
    span: Span,
    reply: oneshot::Sender<Verdict>,
}

#[derive(Debug)]
enum Verdict {
    Answered(Result<Sent, Error>),
    /// The task that was to send it has ended, and it was not sent.
    Unsent(NewMessage),
}

/// A caller's place in the queue of waiting sends. Dropping it withdraws the message, unless it is
/// already being sent.
struct Place {
    // First, so that a message put back finds that its caller is gone.
    verdict: oneshot::Receiver<Verdict>,
    number: u64,
    waiting: Shared,
}

impl Merger {
    /// Groups the sends of this durability.
    pub(crate) fn of(durability: Durability) -> Self {
        let waiting = Shared::default();
        let all = BTreeMap::from([((durability, 0), Arc::clone(&waiting))]);
        Self { durability, waiting, all: Arc::new(Mutex::new(all)) }
    }

    /// Groups the sends of another durability: together with all others of it that stem from the
    /// same queue.
    pub(crate) fn durable(mut self, durability: Durability) -> Self {
        self.waiting = Arc::clone(lock(&self.all).entry((durability, 0)).or_default());
        Self { durability, ..self }
    }

    fn of_shard(&self, shard: usize) -> Shared {
        match shard {
            0 => Arc::clone(&self.waiting),
            _ => Arc::clone(lock(&self.all).entry((self.durability, shard)).or_default()),
        }
    }

    /// Sends a message together with others.
    ///
    /// # Errors
    ///
    /// The message violates a limit, too many sends wait ([`ErrorKind::Overloaded`]), or an error
    /// of `enqueue`.
    pub(crate) async fn send(&self, client: &Client, message: NewMessage) -> Result<Sent, Error> {
        let span = telemetry::send_span(client.label().as_str(), &message.id);
        let result = self.wait(client, message, &span).instrument(span.clone()).await;
        if let Err(error) = &result {
            telemetry::failed(&span, error.class().name());
        }
        result
    }

    async fn wait(
        &self,
        client: &Client,
        mut message: NewMessage,
        span: &Span,
    ) -> Result<Sent, Error> {
        // A bad message must not fail its group.
        message.validate()?;
        let give_up = client.give_up();
        let waiting = self.of_shard(client.shard_of(&message));
        loop {
            let Ok(runtime) = Handle::try_current() else {
                // Without a runtime no task can send groups, so it is sent alone.
                let answered = enqueue(client, give_up, vec![((), message)], Turn::of_only()).await;
                let only = answered.into_iter().next();
                return only.map_or_else(|| Err(Error::unexpected_reply()), |it| it.result);
            };
            let (mut place, leads) = enter(&waiting, client, message, give_up, span)?;
            let verdict = if leads {
                let waiting = Arc::clone(&waiting);
                runtime.spawn(Lead { waiting, number: place.number, over: false }.send_all());
                place.verdict().await?
            } else {
                place.verdict_until(give_up).await?
            };
            match verdict {
                Verdict::Answered(result) => return result,
                Verdict::Unsent(back) => message = back,
            }
        }
    }
}

impl Waiting {
    fn put(&mut self, entry: Entry, client: &Client) {
        self.client.get_or_insert_with(|| client.clone());
        self.bytes = self.bytes.saturating_add(entry.message.content_bytes());
        self.entries.insert(entry.caller.number, entry);
    }

    fn take(&mut self, number: u64) -> Option<Entry> {
        let entry = self.entries.remove(&number)?;
        self.bytes = self.bytes.saturating_sub(entry.message.content_bytes());
        Some(entry)
    }

    /// The next group: the oldest messages that fit in one operation, each id once.
    fn group(&mut self) -> Vec<Entry> {
        let items = self.entries.values().map(|entry| &entry.message);
        let count = fitting(items.map(|message| (&message.id, message.content_bytes())));
        let numbers: Vec<_> = self.entries.keys().take(count).copied().collect();
        numbers.into_iter().filter_map(|number| self.take(number)).collect()
    }
}

/// Adds a message, and returns whether its caller has to start the task that sends.
fn enter(
    waiting: &Shared,
    client: &Client,
    message: NewMessage,
    give_up: Instant,
    span: &Span,
) -> Result<(Place, bool), Error> {
    let all = Arc::clone(waiting);
    let mut waiting = lock(waiting);
    let bytes = waiting.bytes.saturating_add(message.content_bytes());
    if waiting.entries.len() >= MAX_WAITING || bytes > MAX_WAITING_BYTES {
        let (count, bytes) = (waiting.entries.len(), waiting.bytes);
        drop(waiting);
        telemetry::overloaded(client.label());
        let detail = format!("{count} sends of {bytes} bytes are waiting for the backend");
        return Err(delayline_core::Error::with_detail(ErrorKind::Overloaded, detail).into());
    }
    let number = waiting.next_number;
    waiting.next_number += 1;
    let (reply, verdict) = oneshot::channel();
    let caller = Caller { number, give_up, span: span.clone(), reply };
    waiting.put(Entry { message, caller }, client);
    let leads = waiting.sender.is_none();
    waiting.sender.get_or_insert_with(|| (number, Instant::now()));
    Ok((Place { verdict, number, waiting: all }, leads))
}

impl Place {
    async fn verdict(&mut self) -> Result<Verdict, Error> {
        (&mut self.verdict).await.map_err(|_| Error::sender_gone())
    }

    /// If the task that sends then does nothing for [`LONGEST_CALL`], its runtime is not being run,
    /// as can happen between two calls of `block_on`. Others that wait choose another task.
    async fn verdict_until(&mut self, give_up: Instant) -> Result<Verdict, Error> {
        let (mut until, mut seen_sent) = (give_up, None);
        loop {
            if let Ok(verdict) = timeout_at(until, self.verdict()).await {
                return verdict;
            }
            let mut waiting = lock(&self.waiting);
            let is_unsent = waiting.entries.contains_key(&self.number);
            let active = match waiting.sender {
                Some((_, active)) if is_unsent => active,
                // The task that has taken the message may have been replaced since.
                _ => *seen_sent.get_or_insert_with(Instant::now),
            };
            if active.elapsed() < LONGEST_CALL {
                until = active + LONGEST_CALL;
                continue;
            }
            waiting.take(self.number);
            if waiting.sender.is_some_and(|(_, active)| active.elapsed() >= LONGEST_CALL) {
                waiting.sender = None;
                hand_back(waiting);
            }
            let error = Error::sender_gone();
            return Err(if is_unsent { error.of_unsent() } else { error });
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.verdict.close();
        lock(&self.waiting).take(self.number);
    }
}

/// The task that sends the groups. If it is dropped before it has finished, because its runtime
/// ends or the backend panics, the waiting callers are released and choose another task.
struct Lead {
    waiting: Shared,
    number: u64,
    over: bool,
}

impl Lead {
    async fn send_all(mut self) {
        loop {
            // Callers that were answered and have more to send join the group.
            yield_now().await;
            let Some((client, group)) = self.next() else { return };
            self.send_group(client, group).await;
            if self.over {
                return;
            }
        }
    }

    /// The next group, and the client that sends it. After `None`, another task has to send.
    fn next(&mut self) -> Option<(Client, Vec<Entry>)> {
        let waiting = Arc::clone(&self.waiting);
        let mut waiting = self.lead(&waiting)?;
        let group = waiting.group();
        self.over = group.is_empty();
        if self.over {
            waiting.sender = None;
        }
        // Those that withdrew have left theirs. It may be the last one of its queue, and closing
        // that must not happen under the lock.
        let client =
            if waiting.entries.is_empty() { waiting.client.take() } else { waiting.client.clone() };
        drop(waiting);
        client.filter(|_| !self.over).map(|client| (client, group))
    }

    /// Sends a group. Drops the client before the last answer, so that a caller who then drops the
    /// queue has closed it.
    async fn send_group(&mut self, client: Client, group: Vec<Entry>) {
        let (mut callers, items): (Vec<_>, Vec<_>) = group
            .into_iter()
            .enumerate()
            .map(|(place, Entry { message, caller })| {
                let give_up = caller.give_up;
                (Some(caller), (place, give_up, message))
            })
            .unzip();
        let span = span(&client, &callers);
        let mut group = Group::new(items.into_iter());
        let mut client = Some(client);
        while let Some(sender) = client.take() {
            // Notes that the task is active.
            drop(self.lead(&Arc::clone(&self.waiting)));
            let answered = tokio::select! {
                biased;
                answered = group.attempt(&sender).instrument(span.clone()) => answered,
                () = all_gone(&mut callers) => return,
            };
            if let Some((error, next_attempt)) = group.failure() {
                self.fail_overdue(*next_attempt, &error.of_unsent());
            }
            client = Some(sender).filter(|_| !group.is_over());
            let mut last = None;
            for Answered { key: place, result } in answered {
                if let Some(caller) = callers.get_mut(place).and_then(Option::take) {
                    answer(last.replace((caller, result)));
                }
            }
            if group.is_over() {
                self.end_if_idle();
            }
            answer(last);
        }
    }

    /// Ends if nothing waits. Once the last caller has its answer, its runtime may not run any
    /// more, and another one could wait for this task.
    fn end_if_idle(&mut self) {
        let waiting = Arc::clone(&self.waiting);
        let Some(mut waiting) = self.lead(&waiting) else { return };
        self.over = waiting.entries.is_empty();
        let mut client = None;
        if self.over {
            waiting.sender = None;
            client = waiting.client.take();
        }
        drop(waiting);
        drop(client);
    }

    /// The waiting sends, unless another task sends them now. Notes that this one is active.
    fn lead<'a>(&mut self, waiting: &'a Mutex<Waiting>) -> Option<MutexGuard<'a, Waiting>> {
        let mut waiting = lock(waiting);
        self.over = waiting.sender.is_none_or(|(number, _)| number != self.number);
        if self.over {
            return None;
        }
        waiting.sender = Some((self.number, Instant::now()));
        Some(waiting)
    }

    /// Fails the waiting sends that would give up before the group is sent again.
    fn fail_overdue(&self, next_attempt: Instant, error: &Error) {
        let mut waiting = lock(&self.waiting);
        let is_overdue = |entry: &Entry| entry.caller.give_up <= next_attempt;
        let entries = waiting.entries.iter().filter(|(_, entry)| is_overdue(entry));
        let numbers: Vec<_> = entries.map(|(number, _)| *number).collect();
        let overdue: Vec<_> = numbers.into_iter().filter_map(|it| waiting.take(it)).collect();
        let client = if waiting.entries.is_empty() { waiting.client.take() } else { None };
        drop(waiting);
        drop(client);
        for Entry { caller, .. } in overdue {
            let _ = caller.reply.send(Verdict::Answered(Err(error.clone())));
        }
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let waiting = Arc::clone(&self.waiting);
        let Some(mut waiting) = self.lead(&waiting) else { return };
        waiting.sender = None;
        hand_back(waiting);
    }
}

/// Lets the callers that wait choose another task.
fn hand_back(mut waiting: MutexGuard<'_, Waiting>) {
    waiting.bytes = 0;
    let unsent = std::mem::take(&mut waiting.entries);
    let client = waiting.client.take();
    drop(waiting);
    drop(client);
    for Entry { message, caller } in unsent.into_values() {
        let _ = caller.reply.send(Verdict::Unsent(message));
    }
}

fn span(client: &Client, callers: &[Option<Caller>]) -> Span {
    match callers {
        [Some(caller)] => caller.span.clone(),
        _ => {
            let members: Vec<_> = callers.iter().flatten().map(|caller| &caller.span).collect();
            telemetry::group_span(client.label().as_str(), members.into_iter())
        }
    }
}

fn answer(answered: Option<(Caller, Result<Sent, Error>)>) {
    if let Some((caller, result)) = answered {
        // Fails if the caller is gone.
        let _ = caller.reply.send(Verdict::Answered(result));
    }
}

/// Completes when all of these callers are gone.
async fn all_gone(callers: &mut [Option<Caller>]) {
    for caller in callers.iter_mut().flatten() {
        caller.reply.closed().await;
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it is locked.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// More than a call of a backend takes, and the pause before it.
const LONGEST_CALL: Duration = Duration::from_secs(30);
/// The most sends that may wait, not counting those being sent.
const MAX_WAITING: usize = 10_000;
/// The most bytes of payloads and headers that waiting sends may have.
const MAX_WAITING_BYTES: usize = 64 * 1024 * 1024;
