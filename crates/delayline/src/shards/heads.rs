//! The next message of each shard, as far as it is known.

use std::collections::HashSet;
use std::time::Duration;

use delayline_core::{
    Applied, At, Claimed, Error, ErrorClass, ErrorKind, MessageId, Millis, Timestamp,
};
use tokio::time::Instant;

/// The next message of each shard, as replies and hints tell.
pub(super) struct Heads {
    all: Vec<Head>,
    /// Leased messages with a follower, which is due when the lease ends.
    followed: HashSet<MessageId>,
    started: Instant,
}

#[derive(Clone)]
struct Head {
    /// When the shard has something to claim, by its own clock, as far as is known.
    next: Option<Timestamp>,
    /// Whether its latest claim left messages that were due.
    more: bool,
    unsorted: bool,
    capped: bool,
    /// Whether to ask it in any case: it was never asked, or its bell rang.
    called: bool,
    asked: Option<Instant>,
    /// Microseconds from the start of this process's clock to the shard's.
    clock: Option<i64>,
    failures: u32,
    /// The latest of them, unless that is only one late reply.
    failure: Option<Error>,
    /// It has failed, and is not asked before.
    not_before: Instant,
}

/// The shares of a claim: shards, with the maximum number of messages of each.
pub(super) type Shares = Vec<(usize, usize)>;

impl Heads {
    pub(super) fn new(shards: usize) -> Self {
        let started = Instant::now();
        let head = Head {
            next: None,
            more: false,
            unsorted: false,
            capped: false,
            called: true,
            asked: None,
            clock: None,
            failures: 0,
            failure: None,
            not_before: started,
        };
        Self { all: vec![head; shards], followed: HashSet::new(), started }
    }

    /// A message of the shard is due then.
    pub(super) fn note(&mut self, shard: usize, due: Timestamp) {
        let head = &mut self.all[shard];
        head.next = head.next.into_iter().chain([due]).min();
    }

    /// An update follows this message, which is leased.
    pub(super) fn follow(&mut self, id: &MessageId) {
        if self.followed.len() >= MOST_FOLLOWED {
            self.followed.clear();
        }
        self.followed.insert(id.clone());
    }

    /// Returns `true` if the end of a lease on this message lets something be claimed.
    pub(super) fn frees(&mut self, shard: usize, id: &MessageId) -> bool {
        self.followed.remove(id) || self.all[shard].capped
    }

    /// The shard has to be asked.
    pub(super) fn call(&mut self, shard: usize) {
        self.all[shard].called = true;
    }

    pub(super) fn call_all(&mut self) {
        self.all.iter_mut().for_each(|head| head.called = true);
    }

    /// The shards whose hints other processes have to hear: the shards that rang, or else the shard
    /// at which this process is expected next.
    pub(super) fn hand_on(&mut self) -> Vec<usize> {
        let rang =
            (0..self.all.len()).filter(|&it| self.all[it].called && self.all[it].asked.is_some());
        let mut shards: Vec<_> = rang.collect();
        if shards.is_empty() {
            let first = (0..self.all.len()).filter(|&it| self.all[it].next.is_some());
            shards.push(first.min_by_key(|&it| self.wait_of(it, At::Server)).unwrap_or_default());
        }
        shards.iter().for_each(|&shard| self.all[shard].called = false);
        shards
    }

    /// Shares the room of a claim among the shards that were not asked yet.
    ///
    /// The shard with the oldest due message gets nearly all if it has many, and otherwise every
    /// shard with due messages gets the same. A shard of which nothing is known for
    /// [`LONGEST_UNSEEN`] gets at least one place, so that none starves.
    pub(super) fn share(&mut self, at: At, room: usize, asked: &[bool]) -> Shares {
        if room == 0 {
            return Shares::new();
        }
        let now = Instant::now();
        let may = |&shard: &usize| !asked[shard] && self.all[shard].not_before <= now;
        let is_unseen = |&shard: &usize| {
            let head = &self.all[shard];
            head.called || head.asked.is_none_or(|asked| now - asked >= LONGEST_UNSEEN)
        };
        let (mut unseen, seen): (Vec<_>, Vec<_>) =
            (0..self.all.len()).filter(may).partition(is_unseen);
        let is_due = |shard: &usize| self.wait_of(*shard, at).is_some_and(|wait| wait <= NEARLY);
        let mut due: Vec<_> = seen.into_iter().filter(is_due).collect();
        due.sort_by_key(|&shard| self.wait_of(shard, at));
        if unseen.is_empty() && due.is_empty() && !asked.contains(&true) {
            // Nothing is known to be due. The reply of one shard says what time it is.
            let any = (0..self.all.len()).min_by_key(|&shard| {
                let head = &self.all[shard];
                (head.not_before.max(now), self.wait_of(shard, at).unwrap_or(i64::MAX), head.asked)
            });
            unseen.extend(any);
        }
        // The shard that was not asked for the longest time is first.
        unseen.sort_by_key(|&shard| self.all[shard].asked);
        // With room for one message only, it goes to an unseen shard; the others follow.
        let left = if due.is_empty() { room } else { room.saturating_sub(1).max(1) };
        unseen.truncate(left);
        if due.first().is_some_and(|&first| self.all[first].more) {
            due.truncate(1);
        }
        let mut shares: Shares = Vec::new();
        if due.is_empty() {
            shares.extend(evenly(room, unseen));
        } else {
            let rest = room.saturating_sub(unseen.len());
            shares.extend(evenly(rest, due));
            shares.extend(unseen.into_iter().map(|shard| (shard, 1)));
        }
        for &(shard, _) in &shares {
            let head = &mut self.all[shard];
            (head.called, head.asked) = (false, Some(now));
        }
        shares
    }

    /// The shards whose groups are to be sorted into lanes.
    pub(super) fn unsorted(&self) -> Vec<usize> {
        (0..self.all.len()).filter(|&shard| self.all[shard].unsorted).collect()
    }

    /// Remembers the reply to a claim that was sent at `sent`.
    pub(super) fn answered(
        &mut self,
        shard: usize,
        sent: Instant,
        applied: &Applied,
        of: &Claimed,
    ) {
        let there = i64::try_from(applied.at.as_ms() * 1_000 + u64::from(applied.micros));
        let here = micros(sent - self.started);
        let head = &mut self.all[shard];
        (head.next, head.more) = (of.next, of.more);
        (head.unsorted, head.capped) = (of.unsorted, of.capped);
        head.clock = there.ok().map(|there| there - here);
        (head.failures, head.failure) = (0, None);
    }

    /// Remembers that a claim has failed: the shard is not asked for a while, so that it does not
    /// hold up the others.
    pub(super) fn failed(&mut self, shard: usize, error: &Error) {
        let head = &mut self.all[shard];
        if head.failures > 0 || *error.kind() != ErrorKind::Timeout {
            head.failure = Some(error.clone());
        }
        let pause = SHORTEST_PAUSE * (1 << head.failures.min(6));
        head.not_before = Instant::now() + pause.min(LONGEST_PAUSE);
        head.failures = head.failures.saturating_add(1);
        head.called = true;
    }

    /// Returns `true` if the latest claim of the shard has failed.
    pub(super) fn is_failing(&self, shard: usize) -> bool {
        self.all[shard].failures > 0
    }

    /// Why claims go without some shards, if they do: one of the failures, a refusal if there is
    /// one.
    pub(super) fn failure(&self) -> Option<Error> {
        let failures = self.all.iter().filter_map(|head| head.failure.as_ref());
        let others = failures.clone().count().saturating_sub(1);
        let error = failures.min_by_key(|error| error.class() != ErrorClass::Rejected)?;
        let others = match others {
            0 => return Some(error.clone()),
            1 => "another shard".to_owned(),
            n => format!("{n} other shards"),
        };
        let detail = format!("{} (and {others})", error.detail());
        Some(Error::with_source(error.kind().clone(), detail, error.clone()))
    }

    /// Completes the reply to a claim with the next messages of all shards: of the shards that were
    /// asked as they replied now, and of the others as they replied before. Its instants are by the
    /// clock of `reference`, which shows `then`.
    pub(super) fn complete(
        &self,
        at: At,
        (reference, then): (usize, Timestamp),
        replied: &[(usize, Claimed)],
        claimed: &mut Claimed,
    ) {
        let now = Instant::now();
        for (shard, head) in self.all.iter().enumerate() {
            let own = replied.iter().find(|(it, _)| *it == shard).map(|(_, claimed)| claimed);
            claimed.capped |= own.map_or(head.capped, |own| own.capped);
            claimed.unsorted |= own.map_or(head.unsorted, |own| own.unsorted);
            let next = if own.is_none() && head.not_before > now {
                let pause = Millis::try_from(head.not_before - now).unwrap_or(Millis::MAX);
                Some(then.after(pause))
            } else {
                let next = own.map_or(head.next, |own| own.next);
                let next = next.map(|next| self.translated(next, shard, reference, at));
                claimed.more |= own.is_some_and(|own| own.more);
                claimed.more |= own.is_none() && next.is_some_and(|next| next <= then);
                next
            };
            claimed.next = claimed.next.into_iter().chain(next).min();
        }
    }

    /// The instant of one shard's clock by that of another one. Clocks that agree closely count as
    /// one clock: what differs is the way of the replies.
    fn translated(&self, instant: Timestamp, from: usize, to: usize, at: At) -> Timestamp {
        let (At::Server, Some(from), Some(to)) = (at, self.all[from].clock, self.all[to].clock)
        else {
            return instant;
        };
        let ahead = to - from;
        if ahead.unsigned_abs() <= SAME_CLOCK {
            return instant;
        }
        let there = i64::try_from(instant.as_ms()).unwrap_or(i64::MAX).saturating_mul(1_000);
        let ms = u64::try_from(there.saturating_add(ahead)).unwrap_or_default().div_ceil(1_000);
        Timestamp::from_ms(ms).unwrap_or(Timestamp::MAX)
    }

    /// Microseconds until the shard has something to claim; negative if that is in the past. `None`
    /// if nothing is known.
    fn wait_of(&self, shard: usize, at: At) -> Option<i64> {
        let head = &self.all[shard];
        let next = i64::try_from(head.next?.as_ms()).ok()?.saturating_mul(1_000);
        let now = match at {
            At::Fixed(now) => i64::try_from(now.as_ms()).ok()?.saturating_mul(1_000),
            At::Server => match head.clock {
                Some(clock) => micros(self.started.elapsed()).saturating_add(clock),
                None => return Some(0),
            },
        };
        Some(next.saturating_sub(now))
    }
}

/// Shares a number of places evenly among shards; the first ones get the rest.
fn evenly(room: usize, mut shards: Vec<usize>) -> Shares {
    shards.truncate(room);
    let count = shards.len().max(1);
    let share = |n| room / count + usize::from(n < room % count);
    shards.into_iter().enumerate().map(|(n, shard)| (shard, share(n))).collect()
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// How long a shard is not looked at, at most, while there are claims.
const LONGEST_UNSEEN: Duration = Duration::from_secs(1);
/// Microseconds before its due instant at which a message counts as due: its claim is on its way
/// meanwhile.
const NEARLY: i64 = 1_000;
/// Microseconds by which two clocks may differ that count as one.
const SAME_CLOCK: u64 = 2_000;
/// Without the followers that were forgotten, their hints count.
const MOST_FOLLOWED: usize = 10_000;
const SHORTEST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
