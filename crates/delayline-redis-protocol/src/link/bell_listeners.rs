//! Waiting on doorbells: up to 64 bells of a process share one blocking command.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use std::{iter, mem};

use bytes::Bytes;
use delayline_core::{Error, ErrorKind};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use super::blocking_pool::BlockingPool;
use super::driver::{Connection, Driver};
use super::health::{no_reply, unexpected};
use crate::keys::Keys;
use crate::script::Script;
use crate::slot::slot_of;
use crate::{CallError, Value};

/// Listens to bells for waiting callers.
///
/// A listener is a task with one blocking command over all bells of its group that have waiters. If
/// no listener's command covers the bell of a new wait, another listener starts, again over all
/// bells. The first one ends with its command, so there are two for at most a few seconds.
///
/// Each hint costs a new command over all bells of its group, so groups are bounded.
///
/// A hint goes to the caller that has waited longest. A wait that is dropped leaves the command
/// where it is, because ending it would cost its connection. If the command then pops a hint
/// without a waiter, or if its waiter is dropped before it has seen the hint, the bell is rung
/// again: another process may wait for it, or a later wait of this one.
pub(crate) struct BellListeners<D: Driver> {
    pool: Arc<BlockingPool<D>>,
    groups: Mutex<Groups<D>>,
    /// Bells of different hash slots cannot share a command.
    is_sharded: bool,
}

/// A group lives as long as it has a waiter or a listener.
struct Groups<D: Driver> {
    of_bell: HashMap<Bytes, Weak<Group<D>>>,
    /// The group with free space, and its number of bells; by slot in a cluster.
    latest: HashMap<Option<u16>, (Weak<Group<D>>, usize)>,
    /// With as many bells, those of former groups are removed from the list.
    most_bells: usize,
}

struct Group<D: Driver> {
    pool: Arc<BlockingPool<D>>,
    /// How much longer than its command a listener may take. Then its runtime is not being run, as
    /// can happen between two calls of `block_on`.
    lateness: Duration,
    state: Mutex<State>,
}

struct State {
    /// The bells with a waiter or a listener.
    bells: HashMap<Bytes, Bell>,
    listeners: BTreeMap<u64, Listener>,
    /// Whether waiting for several bells at once works, as far as is known.
    several: bool,
    /// Until then, each bell has its own listener. So a bell that is not permitted, or has the
    /// wrong type, does not silence the others.
    apart_until: Option<Instant>,
    next_number: u64,
}

#[derive(Default)]
struct Bell {
    /// In order of arrival.
    waiters: BTreeMap<u64, Waiter>,
    /// The listeners whose command covers it.
    heard_by: Vec<u64>,
}

struct Waiter {
    until: Instant,
    answer: oneshot::Sender<Answer>,
}

struct Listener {
    /// The bells that its command covers, or will cover in a moment.
    bells: Vec<Bytes>,
    /// When its command ends. Until that has begun, when the listener was started.
    until: Instant,
    task: AbortHandle,
}

/// The bells of one blocking command, and its duration.
struct Round {
    bells: Vec<Bytes>,
    limit: Duration,
}

type Answer = Result<bool, CallError>;

impl<D: Driver> BellListeners<D> {
    pub(crate) fn new(pool: BlockingPool<D>) -> Self {
        let groups =
            Groups { of_bell: HashMap::new(), latest: HashMap::new(), most_bells: MOST_BELLS };
        Self { pool: Arc::new(pool), groups: Mutex::new(groups), is_sharded: false }
    }

    pub(crate) const fn sharded(mut self) -> Self {
        self.is_sharded = true;
        self
    }

    /// Waits until `bell` rings, for about `limit`. It may return `false` earlier.
    ///
    /// # Errors
    ///
    /// The connection or the server failed.
    pub(crate) async fn wait(&self, bell: &Bytes, limit: Duration) -> Answer {
        let group = self.group_of(bell);
        let (number, answer) = group.enter(bell, limit);
        let mut leaves = Leaves { group: &group, bell, number, answer };
        // The listener answers sooner, unless it waits for others of this bell with longer limits.
        let (mut patience, mut is_last) = (limit + LATEST_ANSWER, false);
        loop {
            match timeout(patience, &mut leaves.answer).await {
                Ok(answer) => return answer.unwrap_or_else(|_| Err(stopped().into())),
                Err(_) if is_last || !group.lock().is_late(bell) => return Ok(false),
                // The process has stood still for longer than that. The listener's answer says
                // whether the server is silent.
                Err(_) => (patience, is_last) = (group.lateness, true),
            }
        }
    }

    /// A bell stays in its group as long as that lives.
    fn group_of(&self, bell: &Bytes) -> Arc<Group<D>> {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(group) = groups.of_bell.get(bell).and_then(Weak::upgrade) {
            return group;
        }
        groups.remove_former();
        let slot = self.is_sharded.then(|| slot_of(bell));
        let (latest, bells) = groups.latest.entry(slot).or_default();
        let group = latest.upgrade().filter(|_| *bells < MOST_BELLS).unwrap_or_else(|| {
            let group = Group::new(&self.pool);
            (*latest, *bells) = (Arc::downgrade(&group), 0);
            group
        });
        *bells += 1;
        groups.of_bell.insert(bell.clone(), Arc::downgrade(&group));
        group
    }
}

impl<D: Driver> Groups<D> {
    /// Removes the bells of former groups, in constant time per bell on average.
    fn remove_former(&mut self) {
        if self.of_bell.len() >= self.most_bells {
            self.of_bell.retain(|_, group| group.strong_count() > 0);
            self.latest.retain(|_, (group, _)| group.strong_count() > 0);
            self.most_bells = 2 * self.of_bell.len() + MOST_BELLS;
        }
    }
}

/// Ends the commands with their connections.
impl<D: Driver> Drop for BellListeners<D> {
    fn drop(&mut self) {
        let groups = self.groups.get_mut().unwrap_or_else(PoisonError::into_inner);
        for group in groups.of_bell.values().filter_map(Weak::upgrade) {
            group.lock().listeners.values().for_each(|listener| listener.task.abort());
        }
    }
}

/// Removes a wait that has ended or was dropped from the list. Passes the hint on that it has not
/// seen: of waits for several bells of which the first counts, the others are dropped.
struct Leaves<'a, D: Driver> {
    group: &'a Arc<Group<D>>,
    bell: &'a Bytes,
    number: u64,
    answer: oneshot::Receiver<Answer>,
}

impl<D: Driver> Drop for Leaves<'_, D> {
    fn drop(&mut self) {
        let mut state = self.group.lock();
        state.leave(self.bell, self.number);
        let is_unseen = matches!(self.answer.try_recv(), Ok(Ok(true)));
        let unwanted = if is_unseen { state.rang(self.bell.clone()) } else { None };
        drop(state);
        if let (Some(bell), Ok(runtime)) = (unwanted, Handle::try_current()) {
            let group = Arc::clone(self.group);
            runtime.spawn(async move {
                if let Ok(connection) = group.pool.take().await {
                    group.ring_again(&bell, connection).await;
                }
            });
        }
    }
}

impl<D: Driver> Group<D> {
    fn new(pool: &Arc<BlockingPool<D>>) -> Arc<Self> {
        let pool = Arc::clone(pool);
        let lateness = pool.longest_connecting() + WAIT_GRACE + LATEST_ANSWER;
        Arc::new(Self { pool, lateness, state: Mutex::new(State::new()) })
    }

    /// Adds a wait to the list, and makes sure that a listener runs.
    fn enter(self: &Arc<Self>, bell: &Bytes, limit: Duration) -> (u64, oneshot::Receiver<Answer>) {
        let (mut state, now) = (self.lock(), Instant::now());
        state.remove(|listener| listener.has_ended() || listener.until + self.lateness < now);
        let (answer, receiver) = oneshot::channel();
        let (number, listener) = (state.number(), state.number());
        let known = state.bells.entry(bell.clone()).or_default();
        known.waiters.insert(number, Waiter { until: now + limit, answer });
        if known.heard_by.is_empty() {
            known.heard_by.push(listener);
            // It cannot begin before the lock is released.
            let task = tokio::spawn(Arc::clone(self).listen(listener)).abort_handle();
            state
                .listeners
                .insert(listener, Listener { bells: vec![bell.clone()], until: now, task });
        }
        (number, receiver)
    }

    async fn listen(self: Arc<Self>, number: u64) {
        let _stops = Stops { group: &self, number };
        loop {
            let several = self.lock().several;
            if several {
                // Callers that were answered together wait again together.
                sleep(GATHERING).await;
            }
            let Some(Round { bells, limit }) = self.lock().next_round(number) else { break };
            let (heard, connection) = match self.hear(bells, limit).await {
                Ok((heard, connection)) => (Ok(heard), Some(connection)),
                Err(error) => (Err(error), None),
            };
            let unwanted = self.lock().heard(number, heard);
            let Some(connection) = connection else { continue };
            match unwanted {
                Some(bell) => self.ring_again(&bell, connection).await,
                None => self.pool.give_back(connection),
            }
        }
    }

    /// One blocking command. Returns which bell rang, if one did, and the connection.
    async fn hear(
        &self,
        bells: Vec<Bytes>,
        limit: Duration,
    ) -> Result<(Option<Bytes>, D::Connection), CallError> {
        let connection = self.pool.take().await?;
        let mut args = bells;
        args.push(seconds(limit).into());
        match request(&connection, "BLPOP", args, limit + WAIT_GRACE).await.and_then(bell_of) {
            Ok(heard) => Ok((heard, connection)),
            Err(error) => {
                self.pool.noted(connection, &error);
                Err(error)
            }
        }
    }

    /// Gives a hint back that no caller of this process waits for. A failure costs one hint.
    async fn ring_again(&self, bell: &Bytes, connection: D::Connection) {
        // Only tests wait for a list that is no queue's bell.
        let Some(keys) = Keys::of_bell(bell) else { return self.pool.give_back(connection) };
        let script = Script::of_ring();
        let named = keys.of(&script.keys);
        let mut args = vec![script.source.clone().into(), named.len().to_string().into()];
        args.extend(named);
        args.push(Bytes::new());
        match request(&connection, "EVAL", args, WAIT_GRACE).await {
            Ok(_) => self.pool.give_back(connection),
            Err(error) => {
                self.pool.noted(connection, &error);
                tracing::debug!(error = %error.into_error(), "a hint could not be given back");
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Answers the waiters of a listener whose runtime ends.
struct Stops<'a, D: Driver> {
    group: &'a Group<D>,
    number: u64,
}

impl<D: Driver> Drop for Stops<'_, D> {
    fn drop(&mut self) {
        self.group.lock().stopped(self.number);
    }
}

impl State {
    fn new() -> Self {
        Self {
            bells: HashMap::new(),
            listeners: BTreeMap::new(),
            several: true,
            apart_until: None,
            next_number: 0,
        }
    }

    const fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// A wait has ended, or was dropped.
    fn leave(&mut self, bell: &Bytes, number: u64) {
        self.bells.get_mut(bell).map(|known| known.waiters.remove(&number));
    }

    /// Whether the listeners of a bell should have answered by now.
    fn is_late(&mut self, bell: &Bytes) -> bool {
        self.remove(Listener::has_ended);
        let now = Instant::now();
        let numbers = self.bells.get(bell).into_iter().flat_map(|bell| &bell.heard_by);
        let mut listeners = numbers.filter_map(|number| self.listeners.get(number)).peekable();
        listeners.peek().is_some() && listeners.all(|listener| listener.until <= now)
    }

    /// Returns the next command of a listener. Without one, the listener is removed from the list.
    fn next_round(&mut self, number: u64) -> Option<Round> {
        let now = Instant::now();
        let apart = self.apart_until.is_some_and(|until| now < until);
        let Listener { bells: own, task, .. } = self.listeners.remove(&number)?;
        // Only bells with a waiter are listened to.
        let mut wanted: Vec<(u64, Bytes, Instant)> = Vec::new();
        let mut are_covered = true;
        self.bells.retain(|name, bell| {
            bell.heard_by.retain(|listener| *listener != number);
            let latest = bell.waiters.values().map(|waiter| waiter.until).max();
            if let (Some((oldest, _)), Some(until)) = (bell.waiters.first_key_value(), latest)
                && (!apart || own.contains(name))
            {
                are_covered &= !bell.heard_by.is_empty();
                wanted.push((*oldest, name.clone(), until));
            }
            !(bell.waiters.is_empty() && bell.heard_by.is_empty())
        });
        if are_covered {
            return None;
        }
        // The oldest bells come first, so that a bell that rings constantly does not starve the
        // others.
        wanted.sort_unstable_by_key(|(oldest, _, _)| *oldest);
        if apart {
            // The others wait again, and get listeners of their own.
            let others: Vec<_> = wanted.drain(1..).map(|(_, bell, _)| bell).collect();
            self.answer(number, &others, &Ok(false));
        }
        let until = wanted.iter().map(|(_, _, until)| *until).min()?;
        let bells: Vec<_> = wanted.into_iter().map(|(_, bell, _)| bell).collect();
        for bell in &bells {
            if let Some(bell) = self.bells.get_mut(bell) {
                bell.heard_by.push(number);
            }
        }
        self.several = bells.len() > 1;
        let limit = until.saturating_duration_since(now);
        let listener = Listener { bells: bells.clone(), until, task };
        self.listeners.insert(number, listener);
        Some(Round { bells, limit })
    }

    /// A listener's command has ended. Returns a bell whose hint has no waiter.
    fn heard(&mut self, number: u64, heard: Result<Option<Bytes>, CallError>) -> Option<Bytes> {
        let answer = match heard {
            Ok(Some(bell)) => return self.rang(bell),
            Ok(None) => Ok(false),
            Err(error) => Err(error),
        };
        let bells = self.listeners.get(&number)?.bells.clone();
        match answer {
            Err(CallError::Reply(line)) if bells.len() > 1 && is_of_one_bell(&line) => {
                self.apart_until = Some(Instant::now() + APART);
                self.answer(number, &bells, &Ok(false));
            }
            answer => self.answer(number, &bells, &answer),
        }
        None
    }

    /// Passes a hint to the caller that has waited longest. Returns the bell if there is none.
    fn rang(&mut self, bell: Bytes) -> Option<Bytes> {
        let waiters = self.bells.get_mut(&bell).map(|bell| &mut bell.waiters);
        let mut waiters = waiters.into_iter().flat_map(|all| iter::from_fn(|| all.pop_first()));
        // A waiter that has just been dropped does not take it.
        let is_taken = waiters.any(|(_, waiter)| waiter.answer.send(Ok(true)).is_ok());
        (!is_taken).then_some(bell)
    }

    /// Answers the waiters of bells that no other listener covers.
    fn answer(&mut self, number: u64, bells: &[Bytes], answer: &Answer) {
        for bell in bells {
            let Some(bell) = self.bells.get_mut(bell) else { continue };
            if bell.heard_by.iter().all(|listener| *listener == number) {
                for (_, waiter) in mem::take(&mut bell.waiters) {
                    // Fails if it has just been dropped.
                    let _ = waiter.answer.send(answer.clone());
                }
            }
        }
    }

    /// Removes the listeners whose runtime has ended before they have begun, or is not being run.
    fn remove(&mut self, is_gone: impl Fn(&Listener) -> bool) {
        let gone = self.listeners.iter().filter(|(_, listener)| is_gone(listener));
        for number in gone.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.stopped(number);
        }
    }

    fn stopped(&mut self, number: u64) {
        let Some(listener) = self.listeners.remove(&number) else { return };
        let Listener { bells, .. } = &listener;
        // One that is only late may have stood still with its process: nothing has failed.
        let answer = if listener.has_ended() { Err(stopped().into()) } else { Ok(false) };
        self.answer(number, bells, &answer);
        for bell in bells {
            if let Some(bell) = self.bells.get_mut(bell) {
                bell.heard_by.retain(|listener| *listener != number);
            }
        }
    }
}

impl Listener {
    fn has_ended(&self) -> bool {
        self.task.is_finished()
    }
}

/// One command, with a time limit.
async fn request(
    connection: &impl Connection,
    command: &'static str,
    args: Vec<Bytes>,
    bound: Duration,
) -> Result<Value, CallError> {
    match timeout(bound, connection.request(command, args)).await {
        Ok(reply) => reply,
        Err(_) => Err(no_reply(bound).into()),
    }
}

/// Which bell a reply to `BLPOP` names, if one rang.
fn bell_of(reply: Value) -> Result<Option<Bytes>, CallError> {
    match reply {
        Value::Nil => Ok(None),
        Value::Array(items) => match items.into_iter().next() {
            Some(Value::Bytes(bell)) => Ok(Some(bell)),
            _ => Err(unexpected("BLPOP").into()),
        },
        Value::Int(_) | Value::Bytes(_) => Err(unexpected("BLPOP").into()),
    }
}

/// Whether an error line may concern one key of several.
fn is_of_one_bell(line: &str) -> bool {
    ["WRONGTYPE", "NOPERM", "CROSSSLOT"].iter().any(|code| line.starts_with(code))
}

/// A timeout as `BLPOP` takes it.
fn seconds(limit: Duration) -> String {
    limit.max(SHORTEST_WAIT).as_secs_f64().to_string()
}

fn stopped() -> Error {
    Error::with_detail(ErrorKind::Unreachable, "the runtime of the wait has ended")
}

/// The shortest timeout that a server gets. Redis 6 never ends a wait of one millisecond, and no
/// server ends one of zero.
const SHORTEST_WAIT: Duration = Duration::from_millis(2);
/// Maximum number of bells of one blocking command.
const MOST_BELLS: usize = 64;
/// How much longer than asked a blocking command may take before its connection counts as dead.
const WAIT_GRACE: Duration = Duration::from_secs(1);
/// How much longer than asked a wait may take.
const LATEST_ANSWER: Duration = Duration::from_secs(2);
/// How long answered callers take to wait again.
const GATHERING: Duration = Duration::from_millis(1);
/// How long bells are listened to one by one after a failure of the common command.
const APART: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_wait_is_too_short_for_any_server() {
        for limit in [0, 1, 999_999, 1_000_000, 1_999_999].map(Duration::from_nanos) {
            assert_eq!(seconds(limit), "0.002", "{limit:?}");
        }
        assert_eq!(seconds(Duration::from_micros(2_500)), "0.0025");
        assert_eq!(seconds(Duration::from_secs(5)), "5");
    }

    #[tokio::test]
    async fn bells_that_failed_together_are_heard_one_by_one() {
        let [one, other] = [&b"one"[..], b"other"].map(Bytes::from_static);
        let mut state = State::new();
        let _waits = [wait_for(&mut state, &one), wait_for(&mut state, &other)];
        let first = listener_for(&mut state, &one);
        let together = state.next_round(first).unwrap().bells;
        assert_eq!(together, [one.clone(), other.clone()]);
        let wrong_type = CallError::Reply("WRONGTYPE of one of them".to_owned());
        state.heard(first, Err(wrong_type));
        let (_waits, waits) = (wait_for(&mut state, &one), wait_for(&mut state, &other));
        assert_eq!(state.next_round(first).unwrap().bells, [one]);
        assert!(matches!(waits.await, Ok(Ok(false))));
        let _waits = wait_for(&mut state, &other);
        let second = listener_for(&mut state, &other);
        assert_eq!(state.next_round(second).unwrap().bells, [other]);
    }

    fn wait_for(state: &mut State, bell: &Bytes) -> oneshot::Receiver<Answer> {
        let (answer, receiver) = oneshot::channel();
        let (number, until) = (state.number(), Instant::now() + Duration::from_secs(60));
        let waiter = Waiter { until, answer };
        state.bells.entry(bell.clone()).or_default().waiters.insert(number, waiter);
        receiver
    }

    /// The number of a listener that has just been started for one who waits.
    fn listener_for(state: &mut State, bell: &Bytes) -> u64 {
        let number = state.number();
        state.bells.get_mut(bell).unwrap().heard_by.push(number);
        let task = tokio::spawn(async {}).abort_handle();
        state
            .listeners
            .insert(number, Listener { bells: vec![bell.clone()], until: Instant::now(), task });
        number
    }
}
