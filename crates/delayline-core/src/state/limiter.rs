//! How many messages the limits of a queue let through.

use crate::{Change, Limits, Rate, SetLimits, Timestamp};

/// Nanoseconds in a millisecond.
const MS: i128 = 1_000_000;

/// The limits of a queue, and where its rate stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
pub(super) struct Limiter {
    leased: Option<u32>,
    each_group: Option<u32>,
    in_order: bool,
    rate: Option<Rate>,
    held_until: Timestamp,
    /// The theoretical arrival time of the generic cell rate algorithm: when all that was delivered
    /// is paid for. A rate whose burst is unspent has it in the past.
    paid_at: Timestamp,
    /// The nanoseconds behind its milliseconds.
    paid_ns: u32,
}

impl Limiter {
    /// Returns whether that changes anything.
    pub(super) fn set(&mut self, now: Timestamp, set: &SetLimits) -> bool {
        let before = *self;
        match set.leased {
            Change::Keep => {}
            Change::Remove => self.leased = None,
            Change::Set(most) => self.leased = Some(most),
        }
        match set.each_group {
            Change::Keep => {}
            Change::Remove => self.each_group = None,
            Change::Set(most) => self.each_group = Some(most),
        }
        self.in_order = set.in_order.unwrap_or(self.in_order);
        match set.rate {
            Change::Keep => {}
            Change::Remove => (self.rate, self.paid_at, self.paid_ns) = (None, Timestamp::MIN, 0),
            Change::Set(rate) => {
                self.rate = Some(rate);
                self.catch_up(now);
            }
        }
        match set.hold {
            Change::Keep => {}
            Change::Remove => self.held_until = Timestamp::MIN,
            Change::Set(until) => self.held_until = until.instant(now),
        }
        *self != before
    }

    /// Lets nothing through until `until`, if that is later than an earlier hold.
    pub(super) fn hold(&mut self, until: Timestamp) {
        self.held_until = self.held_until.max(until);
    }

    /// The instant from which one more message may be delivered, given the `leased` ones; `None`
    /// while as many are leased as may be. A relay counts no leases: `leased` is `None` for it.
    pub(super) fn open_at(&self, leased: Option<usize>) -> Option<Timestamp> {
        (self.slots(leased) > 0).then(|| self.held_until.max(self.rate_open_at()))
    }

    /// How many messages may be delivered now, and whether that has changed anything: after a step
    /// back of the clock, the rate waits for one burst at most.
    pub(super) fn admit(&mut self, now: Timestamp, leased: Option<usize>) -> (usize, bool) {
        let caught_up = self.catch_up(now);
        let free = self.rate.map_or(usize::MAX, |rate| {
            let spare = (total(rate) - self.ahead(now)) / interval(rate);
            usize::try_from(spare).unwrap_or(usize::MAX)
        });
        let admitted = if self.held_until > now { 0 } else { free.min(self.slots(leased)) };
        (admitted, caught_up)
    }

    /// Counts messages that are delivered now.
    pub(super) fn spend(&mut self, now: Timestamp, delivered: usize) {
        if let Some(rate) = self.rate.filter(|_| delivered > 0) {
            let delivered = i128::try_from(delivered).unwrap_or(i128::MAX);
            self.pay(now, self.ahead(now) + delivered * interval(rate));
        }
    }

    pub(super) fn shown(&self, now: Timestamp) -> Limits {
        let to_come = |instant| Some(instant).filter(|instant| *instant > now);
        Limits {
            leased: self.leased,
            each_group: self.each_group,
            in_order: self.in_order,
            rate: self.rate,
            rate_open_at: to_come(self.rate_open_at()),
            held_until: to_come(self.held_until),
        }
    }

    /// How many messages may hold slots of one group; `None` if nothing limits them.
    pub(super) fn slots_of_group(&self) -> Option<usize> {
        let most = if self.in_order { Some(1) } else { self.each_group };
        most.map(|most| usize::try_from(most).unwrap_or(usize::MAX))
    }

    /// Whether a message holds its group's slot until it ends, and not only while it is leased.
    pub(super) const fn is_in_order(&self) -> bool {
        self.in_order
    }

    /// Whether as many messages are leased as may be.
    pub(super) fn is_capped(&self, leased: usize) -> bool {
        self.slots(Some(leased)) == 0
    }

    /// Whether there is a limit of any kind. A hold is none.
    pub(super) fn has_limits(&self) -> bool {
        self.leased.is_some() || self.slots_of_group().is_some() || self.rate.is_some()
    }

    /// Whether there is a limit of leases.
    pub(super) const fn limits_leases(&self) -> bool {
        self.leased.is_some()
    }

    /// How many more messages may be leased.
    fn slots(&self, leased: Option<usize>) -> usize {
        let most = self.leased.and_then(|most| usize::try_from(most).ok());
        most.zip(leased).map_or(usize::MAX, |(most, leased)| most.saturating_sub(leased))
    }

    /// When the rate lets the next message through.
    fn rate_open_at(&self) -> Timestamp {
        let Some(rate) = self.rate else { return Timestamp::MIN };
        let burst = total(rate) - interval(rate);
        let ns = i128::from(self.paid_ns) - burst;
        // Rounded up: nothing is early.
        instant(i128::from(self.paid_at.as_ms()) - (-ns).div_euclid(MS))
    }

    /// Nanoseconds from now until all is paid for.
    fn ahead(&self, now: Timestamp) -> i128 {
        let ms = i128::from(self.paid_at.as_ms()) - i128::from(now.as_ms());
        (ms * MS + i128::from(self.paid_ns)).max(0)
    }

    /// Returns whether more was to be paid for than a burst, which only a step of the clock or
    /// another rate can bring about.
    fn catch_up(&mut self, now: Timestamp) -> bool {
        let Some(rate) = self.rate else { return false };
        let is_behind = self.ahead(now) > total(rate);
        if is_behind {
            self.pay(now, total(rate));
        }
        is_behind
    }

    fn pay(&mut self, now: Timestamp, ahead: i128) {
        let ms = i128::from(now.as_ms()) + ahead.div_euclid(MS);
        self.paid_at = instant(ms);
        let is_last = ms >= i128::from(Timestamp::MAX.as_ms());
        let ns = if is_last { 0 } else { ahead.rem_euclid(MS) };
        self.paid_ns = u32::try_from(ns).unwrap_or(0);
    }
}

fn interval(rate: Rate) -> i128 {
    i128::from(rate.interval_ns()).max(1)
}

/// The nanoseconds of a whole burst.
fn total(rate: Rate) -> i128 {
    i128::from(rate.burst) * interval(rate)
}

/// The nearest instant that there is.
fn instant(ms: i128) -> Timestamp {
    let ms = ms.clamp(0, Timestamp::MAX.as_ms().into());
    u64::try_from(ms).ok().and_then(|ms| Timestamp::from_ms(ms).ok()).unwrap_or(Timestamp::MAX)
}
