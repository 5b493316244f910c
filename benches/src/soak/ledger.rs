//! The messages that were sent, and their fates.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use delayline::{Bytes, Job, Timestamp};
use hdrhistogram::Histogram;
use tokio::sync::oneshot;

use crate::shape::DelayClass;

/// Messages that share a row in the table of lateness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Class {
    /// The queue is nearly empty, so there is no excuse for lateness.
    Lone(DelayClass),
    /// One message for each queue is due in the same millisecond.
    Wave,
    /// One of a stream.
    Stream,
}

/// The limits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bounds {
    /// Maximum lateness of a lone message.
    pub(crate) lateness: Duration,
    /// Maximum lateness of a message of a wave or a stream.
    pub(crate) busy_lateness: Duration,
}

/// Every message of one program.
pub(crate) struct Ledger(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    next: u64,
    waiting: HashMap<u64, Expected>,
    account: Account,
}

/// Messages left at the end.
#[derive(Default)]
pub(crate) struct Account {
    pub(crate) sent: u64,
    pub(crate) deliveries: u64,
    pub(crate) handled: u64,
    pub(crate) cancelled: u64,
    /// In microseconds.
    pub(crate) lateness: BTreeMap<Class, Histogram<u64>>,
    pub(crate) bounds: Bounds,
    /// Messages that are later than their bounds, until the machine's stalls are known.
    pub(crate) late: Vec<Late>,
    /// What must not happen; the first of them.
    pub(crate) faults: Vec<String>,
    pub(crate) fault_count: u64,
}

/// A message that began late.
#[derive(Clone, Debug)]
pub(crate) struct Late {
    pub(crate) class: Class,
    pub(crate) queue: String,
    pub(crate) delay: Duration,
    pub(crate) due: SystemTime,
    pub(crate) begun: SystemTime,
}

/// The planned fate of a message.
struct Expected {
    class: Class,
    delay: Duration,
    /// Planned number of deliveries.
    deliveries: u64,
    begun: u64,
    /// In milliseconds of the epoch.
    earliest: u128,
    latest: Option<u128>,
    done: oneshot::Sender<()>,
}

/// A message that is being sent.
pub(crate) struct Promise {
    pub(crate) number: u64,
    due: Due,
    pub(crate) done: oneshot::Receiver<()>,
}

/// When a message is to be due.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Due {
    /// Time from the send.
    In(Duration),
    /// Then, whenever it is sent.
    At(SystemTime),
}

impl Class {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Lone(class) => class.name(),
            Self::Wave => "wave",
            Self::Stream => "stream",
        }
    }
}

impl Bounds {
    pub(crate) const fn of(self, class: Class) -> Duration {
        match class {
            Class::Lone(_) => self.lateness,
            Class::Wave | Class::Stream => self.busy_lateness,
        }
    }
}

impl Ledger {
    pub(crate) fn new(bounds: Bounds) -> Self {
        let account = Account { bounds, ..Account::default() };
        Self(Mutex::new(Inner { account, ..Inner::default() }))
    }

    /// Records a message that is about to be sent, with its planned number of deliveries.
    pub(crate) fn promise(&self, class: Class, due: Due, deliveries: u64) -> Promise {
        let (done, receiver) = oneshot::channel();
        let mut inner = self.lock();
        let number = inner.next;
        inner.next += 1;
        let now = SystemTime::now();
        let (delay, earliest) = match due {
            Due::In(delay) => (delay, millis(now) + delay.as_millis()),
            Due::At(due) => (due.duration_since(now).unwrap_or_default(), millis(due)),
        };
        let expected =
            Expected { class, delay, deliveries, begun: 0, earliest, latest: None, done };
        inner.waiting.insert(number, expected);
        Promise { number, due, done: receiver }
    }

    /// It was sent, or was not.
    pub(crate) fn sent<T>(&self, promise: &Promise, result: Result<T>) {
        let mut inner = self.lock();
        if let Err(error) = result {
            inner.waiting.remove(&promise.number);
            inner.account.fault(format!("a message could not be sent: {error:#}"));
            return;
        }
        inner.account.sent += 1;
        if let Some(expected) = inner.waiting.get_mut(&promise.number) {
            let now = SystemTime::now();
            let latest = match promise.due {
                Due::In(delay) => millis(now) + delay.as_millis(),
                Due::At(due) => millis(due.max(now)),
            };
            // Both are rounded to milliseconds; requested delays are rounded up.
            expected.latest = Some(latest + 2);
        }
    }

    /// It was cancelled before any handler could begin on it.
    pub(crate) fn cancelled(&self, promise: &Promise) {
        let mut inner = self.lock();
        inner.account.cancelled += 1;
        let expected = inner.waiting.remove(&promise.number);
        if expected.is_none_or(|expected| expected.begun > 0) {
            inner.account.fault("a message was delivered, and then cancelled".to_owned());
        }
    }

    /// A handler begins. Answers which delivery of how many this is.
    pub(crate) fn begin(&self, queue: &str, job: &Job<Bytes>) -> Option<(u64, u64)> {
        let begun = SystemTime::now();
        let mut guard = self.lock();
        let Inner { waiting, account, .. } = &mut *guard;
        account.deliveries += 1;
        let number = <[u8; 8]>::try_from(&**job.payload()).map(u64::from_be_bytes);
        let expected = number.ok().and_then(|number| waiting.get_mut(&number));
        let Some(expected) = expected else {
            let (id, epoch) = (job.id(), job.epoch());
            account.fault(format!(
                "{queue}: {id} was delivered after its end, or was never sent (epoch {epoch})"
            ));
            return None;
        };
        expected.begun += 1;
        if expected.begun > expected.deliveries {
            let (id, begun, meant) = (job.id(), expected.begun, expected.deliveries);
            account
                .fault(format!("{queue}: {id} was delivered {begun} times and not {meant} times"));
        }
        let due = job.due();
        if expected.begun == 1 {
            let ms = u128::from(due.as_ms());
            let latest = expected.latest.unwrap_or(u128::MAX);
            if ms < expected.earliest || ms > latest {
                let (id, earliest) = (job.id(), expected.earliest);
                account.fault(format!(
                    "{queue}: {id} is due at {ms}, and not from {earliest} to {latest}"
                ));
            }
        }
        account.note(expected.class, queue, expected.delay, due, begun);
        Some((expected.begun, expected.deliveries))
    }

    /// Its last handler has begun: nothing more is to happen to it.
    pub(crate) fn end(&self, job: &Job<Bytes>) {
        let Ok(number) = <[u8; 8]>::try_from(&**job.payload()) else { return };
        let mut inner = self.lock();
        if let Some(expected) = inner.waiting.remove(&u64::from_be_bytes(number)) {
            inner.account.handled += 1;
            // The sender may not wait for it.
            let _ = expected.done.send(());
        }
    }

    pub(crate) fn fault(&self, what: String) {
        self.lock().account.fault(what);
    }

    /// How many messages are on their way.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Ends the ledger: messages not delivered by now are lost.
    pub(crate) fn close(&self) -> Account {
        let mut inner = self.lock();
        let (lost, mut account) = (inner.waiting.len(), std::mem::take(&mut inner.account));
        if lost > 0 {
            account.fault(format!("{lost} messages never came"));
        }
        account
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Account {
    pub(crate) fn fault(&mut self, what: String) {
        self.fault_count += 1;
        if self.faults.len() < MOST_FAULTS {
            self.faults.push(what);
        }
    }

    pub(crate) fn note(
        &mut self,
        class: Class,
        queue: &str,
        delay: Duration,
        due: Timestamp,
        begun: SystemTime,
    ) {
        let due = SystemTime::from(due);
        let Ok(late) = begun.duration_since(due) else {
            self.fault(format!("{queue}: a handler began {:?} early", due.duration_since(begun)));
            return;
        };
        let histogram = self.lateness.entry(class).or_insert_with(new_histogram);
        histogram.saturating_record(u64::try_from(late.as_micros()).unwrap_or(u64::MAX));
        if late <= self.bounds.of(class) {
            return;
        }
        if self.late.len() == MOST_LATE {
            self.fault(format!("more than {MOST_LATE} messages were later than their bounds"));
            return;
        }
        self.late.push(Late { class, queue: queue.to_owned(), delay, due, begun });
    }
}

impl Late {
    pub(crate) fn by(&self) -> Duration {
        self.begun.duration_since(self.due).unwrap_or_default()
    }
}

/// Up to an hour in microseconds.
#[expect(clippy::expect_used, reason = "the bounds are constants")]
fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_max(3_600_000_000, 3).expect("1 <= 3 digits <= 5")
}

fn millis(time: SystemTime) -> u128 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis()
}

const MOST_LATE: usize = 100_000;
const MOST_FAULTS: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_beyond_its_bound_is_kept_and_more_than_fits_is_a_fault() {
        let busy_lateness = Duration::from_millis(5);
        let bounds = Bounds { busy_lateness, ..Bounds::default() };
        let mut account = Account { bounds, ..Account::default() };
        let due = Timestamp::from_ms(1_800_000_000_000).unwrap();
        let mut note = |messages: usize, late_ms| {
            for _ in 0..messages {
                let begun = SystemTime::from(due) + Duration::from_millis(late_ms);
                account.note(Class::Wave, "orders", Duration::ZERO, due, begun);
            }
            (account.late.len(), account.fault_count)
        };
        assert_eq!(note(9, 5), (0, 0));
        assert_eq!(note(MOST_LATE, 6), (MOST_LATE, 0));
        assert_eq!(note(1, 6), (MOST_LATE, 1));
    }
}
