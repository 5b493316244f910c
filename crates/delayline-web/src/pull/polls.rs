//! The polls that wait for messages of one queue.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use delayline::backend::{self, Backoff, Claim, Claimed, Op, Reply, Wakeup};
use delayline::codec::Raw;
use delayline::limits::WORKER_POLL_MS;
use delayline::{Bytes, Error, ErrorClass, ErrorKind, Queue, Timestamp};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::hold::{Claims, Hold};

/// What a claim returned, and when by the server's clock.
pub struct Granted {
    /// The leases.
    pub claimed: Claimed,
    /// `None` if the queue was not asked.
    pub at: Option<Timestamp>,
}

impl Granted {
    const fn nothing(claimed: Claimed) -> Self {
        Self { claimed, at: None }
    }

    /// Returns `true` if there is something to answer before the end of the wait.
    const fn is_answer(&self) -> bool {
        !self.claimed.deliveries.is_empty() || self.claimed.more
    }
}

/// The polls that wait for messages of one queue, in the order in which they came.
#[derive(Default)]
pub struct Polls {
    /// The claims that are being answered.
    pub claims: Arc<Claims>,
    state: Mutex<State>,
    /// The task that serves the polls must look at the state again.
    news: Notify,
}

#[derive(Default)]
struct State {
    waiting: BTreeMap<i64, Waiting>,
    /// The keys of the polls that joined first and last. No key is used twice: a poll that ends
    /// removes its own.
    first: i64,
    last: i64,
    /// When the task claims next; at once if there is none.
    look_at: Option<Instant>,
    /// The task runs.
    attended: bool,
    /// Why the last claim failed.
    failure: Option<Error>,
}

struct Waiting {
    claim: Arc<Claim>,
    hold: Hold,
    answer: oneshot::Sender<Result<Granted, Error>>,
    is_claiming: bool,
    /// Its time has ended: the claim under way is its last.
    is_over: bool,
}

impl State {
    fn is_quiet(&self) -> bool {
        self.attended && self.look_at.is_some_and(|at| at > Instant::now())
    }
}

impl Polls {
    /// Claims, and waits for messages until `deadline` or `stop`.
    ///
    /// While other polls wait and nothing is due, the queue is not asked if the claim `is_new`: no
    /// earlier request can have made it. If the queue cannot be reached, the poll waits for that as
    /// well, and fails at the end of its time.
    ///
    /// If the future is dropped, the poll ends; leases that it is granted are released.
    ///
    /// # Errors
    ///
    /// The error of the last claim.
    pub async fn claim(
        self: &Arc<Self>,
        queue: &Queue<Bytes, Raw>,
        claim: Claim,
        is_new: bool,
        hold: &Hold,
        deadline: Option<Instant>,
        stop: &CancellationToken,
    ) -> Result<Granted, Error> {
        let claim = Arc::new(claim);
        let mut joined = None;
        if deadline.is_some() && is_new {
            joined = self.join(queue, &claim, hold, Place::IfQuiet);
        }
        let (poll, mut answer) = if let Some(joined) = joined {
            joined
        } else {
            let (polls, queue_, claim_, hold_) =
                (Arc::clone(self), queue.clone(), Arc::clone(&claim), hold.clone());
            let work = async move { attempt(&polls, &queue_, &claim_, &hold_).await };
            // A client that disconnects drops this future, when the server may have granted leases.
            let first = tokio::spawn(work.in_current_span()).await.map_err(|_| aborted())?;
            let place = match (&first, deadline) {
                (_, None) => return first,
                (Ok(granted), _) if granted.is_answer() => return first,
                (Ok(_), _) => Place::Last,
                (Err(error), _) => match error.class() {
                    ErrorClass::Rejected => return first,
                    // It may have leases: only the same claim can tell, and soon.
                    ErrorClass::Ambiguous => Place::First,
                    ErrorClass::NotExecuted => Place::Last,
                },
            };
            if let Err(error) = first {
                let mut state = self.lock();
                state.failure = Some(error);
                state.look_at = Some(Instant::now() + FIRST_PAUSE);
            }
            self.join(queue, &claim, hold, place).ok_or_else(aborted)?
        };
        let end = async {
            match deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            answered = &mut answer => return answered.map_err(|_| aborted())?,
            () = stop.cancelled() => {}
            () = end => {}
        }
        match poll.leave() {
            Left::Quiet(None) => Ok(Granted::nothing(Claimed::default())),
            Left::Quiet(Some(error)) => Err(error),
            Left::Claiming => answer.await.map_err(|_| aborted())?,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a poll, and starts the task unless it runs.
    fn join(
        self: &Arc<Self>,
        queue: &Queue<Bytes, Raw>,
        claim: &Arc<Claim>,
        hold: &Hold,
        place: Place,
    ) -> Option<(Poll, oneshot::Receiver<Result<Granted, Error>>)> {
        let mut state = self.lock();
        if matches!(place, Place::IfQuiet) && !state.is_quiet() {
            return None;
        }
        let key = if matches!(place, Place::First) {
            state.first -= 1;
            state.first
        } else {
            state.last += 1;
            state.last
        };
        let (answer, answered) = oneshot::channel();
        let (claim, hold) = (Arc::clone(claim), hold.clone());
        let poll = Waiting { claim, hold, answer, is_claiming: false, is_over: false };
        state.waiting.insert(key, poll);
        let is_first = !std::mem::replace(&mut state.attended, true);
        // A runtime that has ended drops the task at once, which needs the lock.
        drop(state);
        if is_first {
            let task = Attendance { polls: Arc::clone(self), has_ended: false };
            tokio::spawn(task.attend(queue.clone()));
        }
        Some((Poll { polls: Arc::clone(self), key }, answered))
    }

    /// Lets the task claim for the next poll.
    fn look_now(&self) {
        self.lock().look_at = None;
        self.news.notify_one();
    }

    /// Takes over when there will be something to claim next.
    ///
    /// A claim that is sent as long after the last one, which was sent at `sent`, arrives in time
    /// if it takes as long.
    fn learn(&self, claimed: &Claimed, until_next: Option<Duration>, sent: Instant) {
        if claimed.more {
            return self.look_now();
        }
        let now = Instant::now();
        let pause = until_next.map_or(SAFETY_POLL, |until| until.min(SAFETY_POLL));
        let mut state = self.lock();
        let known = state.look_at.filter(|known| *known > now);
        let next = known.map_or(sent + pause, |known| known.min(sent + pause));
        let is_earlier = known.is_some_and(|known| next < known);
        state.look_at = Some(next);
        drop(state);
        // Senders rely on the earliest instant that a claim has returned.
        if is_earlier {
            self.news.notify_one();
        }
    }

    /// Returns what the task does next; `None` without polls: then it has ended.
    fn next_step(&self) -> Option<Step> {
        let mut state = self.lock();
        let look_at = state.look_at.filter(|at| *at > Instant::now());
        let Some((key, first)) = state.waiting.iter_mut().next() else {
            state.attended = false;
            return None;
        };
        Some(if let Some(until) = look_at {
            Step::Rest(until)
        } else {
            first.is_claiming = true;
            Step::Look(*key, Arc::clone(&first.claim), first.hold.clone())
        })
    }

    /// Answers a poll with what its claim returned, if that is an answer or its time has ended.
    fn conclude(&self, key: i64, result: Result<Granted, Error>, pause: Duration) {
        let mut state = self.lock();
        // Taken out before they are dropped: their contents need other locks.
        let mut ended = Vec::new();
        let is_over = state.waiting.get(&key).is_some_and(|poll| poll.is_over);
        match result {
            Ok(granted) => {
                state.failure = None;
                if is_over || granted.is_answer() {
                    ended.extend(state.waiting.remove(&key).map(|poll| (poll, Ok(granted))));
                }
            }
            Err(error) if error.class() == ErrorClass::Rejected => {
                let all = std::mem::take(&mut state.waiting).into_values();
                ended.extend(all.map(|poll| (poll, Err(error.clone()))));
            }
            Err(error) => {
                if is_over {
                    let poll = state.waiting.remove(&key);
                    ended.extend(poll.map(|poll| (poll, Err(error.clone()))));
                }
                state.failure = Some(error);
                state.look_at = Some(Instant::now() + pause);
            }
        }
        if let Some(poll) = state.waiting.get_mut(&key) {
            poll.is_claiming = false;
        }
        drop(state);
        for (poll, result) in ended {
            // A client that has disconnected has dropped its end.
            let _ = poll.answer.send(result);
        }
    }
}

/// Where a poll joins the others.
enum Place {
    /// Last, if the task runs and nothing is due.
    IfQuiet,
    First,
    Last,
}

enum Step {
    Rest(Instant),
    Look(i64, Arc<Claim>, Hold),
}

/// A waiting poll, until this is dropped.
struct Poll {
    polls: Arc<Polls>,
    key: i64,
}

enum Left {
    /// It was not being claimed for. The last claim may have failed.
    Quiet(Option<Error>),
    /// The task claims for it, and answers with what the claim returns.
    Claiming,
}

impl Poll {
    fn leave(&self) -> Left {
        let mut state = self.polls.lock();
        match state.waiting.get_mut(&self.key) {
            None => return Left::Claiming,
            Some(poll) if poll.is_claiming => {
                poll.is_over = true;
                return Left::Claiming;
            }
            Some(_) => {}
        }
        let poll = state.waiting.remove(&self.key);
        let failure = state.failure.clone();
        self.polls.end_if_last(state);
        drop(poll);
        Left::Quiet(failure)
    }
}

impl Polls {
    fn end_if_last(&self, state: MutexGuard<'_, State>) {
        let is_last = state.waiting.is_empty();
        drop(state);
        if is_last {
            self.news.notify_one();
        }
    }
}

impl Drop for Poll {
    fn drop(&mut self) {
        let mut state = self.polls.lock();
        if let Some(poll) = state.waiting.remove(&self.key) {
            self.polls.end_if_last(state);
            drop(poll);
        }
    }
}

/// The task that serves the polls. If it is dropped before its end, because its runtime ends or the
/// queue panics, the polls that wait fail, and the next one starts another task.
struct Attendance {
    polls: Arc<Polls>,
    has_ended: bool,
}

impl Attendance {
    /// Claims for one poll after the other, as messages fall due and hints come; ends with the last
    /// poll.
    async fn attend(mut self, queue: Queue<Bytes, Raw>) {
        let polls = Arc::clone(&self.polls);
        let mut pauses = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        // A hint was taken, and no claim has followed yet. Or the latest claim returned when the
        // next message is due, and the queue wakes no other consumer for that.
        let mut is_expected = false;
        while let Some(step) = polls.next_step() {
            match step {
                Step::Rest(until) => is_expected |= rest(&polls, &queue, until).await,
                Step::Look(key, claim, hold) => {
                    let result = attempt(&polls, &queue, &claim, &hold).await;
                    if let Ok(Granted { claimed, .. }) = &result {
                        pauses.reset();
                        let has_room = claimed.deliveries.len() < claim.max;
                        is_expected = has_room && !claimed.more && claimed.next.is_some();
                    } else if std::mem::take(&mut is_expected) {
                        pass_on(&queue).await;
                    }
                    polls.conclude(key, result, pauses.next(u32::MAX / 2));
                }
            }
        }
        // From here on, a poll that joins starts another task.
        self.has_ended = true;
        if is_expected {
            pass_on(&queue).await;
        }
    }
}

impl Drop for Attendance {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        let mut state = self.polls.lock();
        state.attended = false;
        let unserved = std::mem::take(&mut state.waiting);
        // First, because the contents of the polls need other locks.
        drop(state);
        drop(unserved);
    }
}

/// Waits for a hint, for `until` or for news. Returns whether a hint came.
async fn rest(polls: &Polls, queue: &Queue<Bytes, Raw>, until: Instant) -> bool {
    tokio::select! {
        () = polls.news.notified() => false,
        () = polls.claims.released.notified() => {
            polls.look_now();
            false
        }
        heard = backend::hint_until(&**queue.backend(), until) => {
            polls.look_now();
            heard
        }
    }
}

/// Other consumers may have counted on this one to claim.
async fn pass_on(queue: &Queue<Bytes, Raw>) {
    if let Err(error) = Wakeup::ring(&**queue.backend()).await {
        tracing::debug!(%error, "a hint could not be passed on");
    }
}

/// Claims until there are messages or none is due. A claim that returns nothing may have buried or
/// reclaimed due messages, and a repeated one has nothing new.
async fn attempt(
    polls: &Polls,
    queue: &Queue<Bytes, Raw>,
    claim: &Claim,
    hold: &Hold,
) -> Result<Granted, Error> {
    let op = Op::Claim(claim.clone());
    let mut tries = MOST_TRIES;
    loop {
        let sent = Instant::now();
        let applied = queue.apply(&op).await?;
        let Reply::Claim(claimed) = &applied.reply else { return Err(unexpected()) };
        hold.granted(&claimed.deliveries, applied.at, claim.lease);
        polls.learn(claimed, claimed.next.map(|next| applied.until(next)), sent);
        tries -= 1;
        if !claimed.deliveries.is_empty() || !claimed.more || tries == 0 {
            let Reply::Claim(claimed) = applied.reply else { return Err(unexpected()) };
            return Ok(Granted { claimed, at: Some(applied.at) });
        }
    }
}

fn unexpected() -> Error {
    backend::Error::new(ErrorKind::Protocol).into()
}

/// The task that claimed has ended without a result.
fn aborted() -> Error {
    let detail = "the claim was aborted";
    backend::Error::with_detail(ErrorKind::ConnectionLost, detail).into()
}

const SAFETY_POLL: Duration = Duration::from_millis(WORKER_POLL_MS);
/// Claims in a row that return nothing although something is due. Each of them reclaims or buries
/// hundreds of messages.
const MOST_TRIES: u32 = 10;
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
