//! Wakes waiting messages of which a member has ended.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use delayline_core::limits::MAX_LOOK_UP;
use delayline_core::{
    Applied, At, Backend as _, Error, Found, Message, MessageId, MessageState, Millis, Op,
    QueueBackend, QueueName, Reply, Reschedule, Rescheduled, Schedule, Timestamp,
};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use super::member::Member;
use super::siblings::{Reach, WeakReach};
use super::wire;

/// The waiting messages to wake. One task wakes them, and ends with the last one.
///
/// A lost wake-up only delays: workers check a waiting message again in any case.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wakeups(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// By queue and id, with the time of the latest end.
    due: HashMap<(Option<QueueName>, MessageId), Instant>,
    has_task: bool,
}

impl Wakeups {
    /// Makes the waiting message due now, in a separate task. Wake-ups within a pause are one.
    pub(crate) fn add(&self, waiting: Member, reach: &Reach) {
        let Ok(runtime) = Handle::try_current() else { return };
        let mut state = self.lock();
        if state.due.len() >= MOST_DUE {
            return;
        }
        state.due.insert((waiting.queue, waiting.id), Instant::now());
        if !std::mem::replace(&mut state.has_task, true) {
            let task = Task { wakeups: self.clone(), has_ended: false };
            runtime.spawn(task.run(reach.downgrade()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is locked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the messages to wake, by queue. Without any, the task has ended.
    fn take(&self) -> BTreeMap<Option<QueueName>, Vec<WakeUp>> {
        let mut state = self.lock();
        let mut due = BTreeMap::<_, Vec<_>>::new();
        for ((queue, id), since) in state.due.drain() {
            due.entry(queue).or_default().push((id, since));
        }
        state.has_task = !due.is_empty();
        due
    }
}

/// Runs until there are no wake-ups, or their queues are dropped: it must not keep them open. If
/// its runtime ends, the next wake-up starts another one.
struct Task {
    wakeups: Wakeups,
    has_ended: bool,
}

impl Task {
    async fn run(mut self, reach: WeakReach) {
        loop {
            let due = self.wakeups.take();
            if due.is_empty() {
                self.has_ended = true;
                return;
            }
            let mut bytes = 0;
            for (queue, ids) in due {
                let Some(backend) = reach.queue(queue.as_ref()).await else { continue };
                for batch in ids.chunks(MAX_LOOK_UP) {
                    let again = match &backend {
                        Ok(backend) => wake(backend, batch, &mut bytes).await,
                        Err(_) => batch.to_vec(),
                    };
                    let mut state = self.wakeups.lock();
                    for (id, since) in again {
                        if since.elapsed() < LONGEST_TRY {
                            state.due.entry((queue.clone(), id)).or_insert(since);
                        }
                    }
                }
            }
            // A message with many members is large, and woken often.
            sleep((PAUSE + Duration::from_micros(bytes / 4)).min(LONGEST_REST)).await;
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if !self.has_ended {
            *self.wakeups.lock() = State::default();
        }
    }
}

/// The id of a message to wake, and the time of the latest end.
type WakeUp = (MessageId, Instant);

/// Makes messages that wait due now. Returns those to try again: a worker checks them, and may have
/// missed the end. Adds the number of bytes that were read.
async fn wake(backend: &Arc<dyn QueueBackend>, ids: &[WakeUp], bytes: &mut u64) -> Vec<WakeUp> {
    match try_to_wake(backend, ids, bytes).await {
        Ok(again) => again,
        Err(error) => {
            tracing::debug!(%error, "waiting messages were not woken; trying again");
            ids.to_vec()
        }
    }
}

async fn try_to_wake(
    backend: &Arc<dyn QueueBackend>,
    ids: &[WakeUp],
    bytes: &mut u64,
) -> Result<Vec<WakeUp>, Error> {
    let op = Op::Get(ids.iter().map(|(id, _)| id.clone()).collect());
    let Applied { at, reply, .. } = backend.apply(At::Server, &op).await?;
    let Reply::Get(all) = reply else { return Ok(Vec::new()) };
    let (mut again, mut waiting) = (Vec::new(), Vec::new());
    for (wakeup, found) in ids.iter().zip(all) {
        let Found::Live(message) = found else { continue };
        *bytes += u64::try_from(message.payload.len()).unwrap_or_default();
        if matches!(message.info.state, MessageState::Leased { .. }) {
            again.push(wakeup.clone());
        } else if waits(&message, at) {
            waiting.push(wakeup.clone());
        }
    }
    if !waiting.is_empty() {
        let now = |(id, _): &WakeUp| Reschedule::new(id.clone(), Schedule::NOW);
        let op = Op::Reschedule(waiting.iter().map(now).collect());
        if let Reply::Reschedule(results) = backend.apply(At::Server, &op).await?.reply {
            let all = waiting.into_iter().zip(results);
            let busy = all.filter(|(_, result)| *result == Rescheduled::InFlight);
            again.extend(busy.map(|(wakeup, _)| wakeup));
        }
    }
    Ok(again)
}

/// Whether the message waits for its next check. A later due time was set by its handler, or by a
/// program that has rescheduled or replaced it.
fn waits(message: &Message, now: Timestamp) -> bool {
    let info = &message.info;
    let next_check = now.after(Millis::try_from(LONGEST_PAUSE).unwrap_or(Millis::MAX));
    let read = wire::read(&message.headers, &message.payload).ok().flatten();
    read.is_some_and(|read| !read.waiting.has_failed(info)) && info.due <= next_check
}

/// The longest pause between two checks of a message that waits.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The pause between two rounds, and the longest one after large messages.
const PAUSE: Duration = Duration::from_millis(20);
const LONGEST_REST: Duration = Duration::from_millis(500);
/// How long a wake-up is tried. A message that a worker holds for longer is with its handler.
const LONGEST_TRY: Duration = Duration::from_secs(2);
/// Maximum number of messages that are to be woken. The rest are not.
const MOST_DUE: usize = 10_000;
