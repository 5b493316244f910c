//! The memory of the history.

use std::collections::BTreeMap;

use crate::{HistoryPoint, Resolution, Timestamp};

/// The snapshots of one resolution. Each slot is for the minutes, or hours, whose numbers leave the
/// same remainder, and holds the latest of them: so nothing has to be trimmed.
#[derive(Clone, Debug)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
pub(super) struct Ring {
    resolution: Resolution,
    slots: BTreeMap<u64, HistoryPoint>,
}

impl Ring {
    pub(super) const fn new(resolution: Resolution) -> Self {
        Self { resolution, slots: BTreeMap::new() }
    }

    /// Stores `point` unless `latest`, the instant of the latest one, is in the same unit of time.
    /// Drops the points that a clock which stepped back has not reached any more.
    pub(super) fn store(&mut self, latest: Timestamp, point: HistoryPoint) {
        let (new, old) = (self.number(point.at), self.number(latest));
        if new < old {
            self.slots.retain(|_, stored| stored.at < point.at);
        }
        if new != old {
            self.slots.insert(self.slot(new), point);
        }
    }

    /// Iterates over the points that are not too old at `now`, in order.
    pub(super) fn up_to(&self, now: Timestamp) -> impl Iterator<Item = HistoryPoint> {
        let last = self.number(now);
        let first = (last + 1).saturating_sub(self.resolution.points());
        (first..=last).filter_map(move |number| {
            let point = self.slots.get(&self.slot(number))?;
            (self.number(point.at) == number).then_some(*point)
        })
    }

    /// Iterates over the stored points, in no order.
    pub(super) fn all(&self) -> impl Iterator<Item = HistoryPoint> {
        self.slots.values().copied()
    }

    const fn number(&self, at: Timestamp) -> u64 {
        at.as_ms() / self.resolution.unit_ms()
    }

    const fn slot(&self, number: u64) -> u64 {
        number % self.resolution.points()
    }
}
