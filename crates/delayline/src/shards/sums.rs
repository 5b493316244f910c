//! Sums of the counters of all shards.

use delayline_core::{
    Applied, Error, Forecast, History, HistoryPoint, Limits, Millis, Op, Rate, Reply, Stats,
    Timestamp,
};

use super::{How, Parts, Shards, unexpected};

impl Shards {
    pub(super) async fn stats(&self, how: How) -> Result<Applied, Error> {
        let Parts { replies, at, revision } = self.everywhere(how, &Op::Stats).await?;
        let mut sum: Option<Stats> = None;
        let (mut least_ms, mut most_ms) = (u64::MAX, 0);
        for applied in replies {
            let Reply::Stats(one) = applied.reply else { return Err(unexpected()) };
            // Both instants are of the clock of this shard.
            let due = one.earliest_due.unwrap_or(applied.at);
            let age_ms = applied.at.as_ms().saturating_sub(due.as_ms());
            (least_ms, most_ms) = (least_ms.min(age_ms), most_ms.max(age_ms));
            match &mut sum {
                None => sum = Some(*one),
                Some(sum) => add(sum, &one),
            }
        }
        let mut sum = sum.ok_or_else(unexpected)?;
        sum.shard_skew = Some(Millis::saturating(most_ms.saturating_sub(least_ms)));
        Ok(Applied::new(at, revision, Reply::Stats(Box::new(sum))))
    }

    pub(super) async fn forecast(&self, how: How, op: &Op) -> Result<Applied, Error> {
        let Parts { replies, at, revision } = self.everywhere(how, op).await?;
        let mut sum = Forecast::default();
        for applied in replies {
            let Reply::Forecast(one) = applied.reply else { return Err(unexpected()) };
            sum.ready = sum.ready.saturating_add(one.ready);
            sum.later = sum.later.saturating_add(one.later);
            sum.due.resize(one.due.len(), 0);
            for (sum, due) in sum.due.iter_mut().zip(one.due) {
                *sum = sum.saturating_add(due);
            }
        }
        Ok(Applied::new(at, revision, Reply::Forecast(sum)))
    }

    /// Sums the points of all shards at each instant. A shard without a point at an instant has not
    /// changed from then to its next point.
    pub(super) async fn history(&self, how: How, op: &Op) -> Result<Applied, Error> {
        let Parts { replies, at, revision } = self.everywhere(how, op).await?;
        let mut all = Vec::new();
        for applied in replies {
            let Reply::History(one) = applied.reply else { return Err(unexpected()) };
            all.push(one.points);
        }
        // The last point of each is the present.
        let past = all.iter().flat_map(|points| points.split_last().map_or(&[][..], |it| it.1));
        let mut instants: Vec<Timestamp> = past.map(|point| point.at).collect();
        instants.sort_unstable();
        instants.dedup();
        let sum = |instant: Option<Timestamp>| {
            let mut sum = HistoryPoint::default();
            sum.at = instant.unwrap_or(at);
            for points in &all {
                let Some((present, past)) = points.split_last() else { continue };
                let next = past.iter().find(|point| instant.is_some_and(|it| it <= point.at));
                let point = next.unwrap_or(present);
                sum.scheduled = sum.scheduled.saturating_add(point.scheduled);
                sum.ready = sum.ready.saturating_add(point.ready);
                sum.leased = sum.leased.saturating_add(point.leased);
                sum.dead = sum.dead.saturating_add(point.dead);
                sum.totals += point.totals;
            }
            sum
        };
        let points = instants.into_iter().map(Some).chain([None]).map(sum).collect();
        Ok(Applied::new(at, revision, Reply::History(History::new(points))))
    }
}

/// Adds the counters of one shard.
pub(super) fn add(sum: &mut Stats, one: &Stats) {
    sum.scheduled = sum.scheduled.saturating_add(one.scheduled);
    sum.ready = sum.ready.saturating_add(one.ready);
    sum.leased = sum.leased.saturating_add(one.leased);
    sum.dead = sum.dead.saturating_add(one.dead);
    sum.paused |= one.paused;
    sum.earliest_due = sum.earliest_due.into_iter().chain(one.earliest_due).min();
    sum.waiting_groups = sum.waiting_groups.saturating_add(one.waiting_groups);
    sum.totals += one.totals;
    let limits: &mut Limits = &mut sum.limits;
    // The shards agree, unless a change has reached only some of them.
    limits.leased = limits.leased.zip(one.limits.leased).map(|(sum, one)| sum.saturating_add(one));
    limits.each_group = limits.each_group.max(one.limits.each_group);
    // Not if only some are: then the change has to be repeated.
    limits.in_order &= one.limits.in_order;
    limits.rate = limits.rate.zip(one.limits.rate).map(|(sum, one)| {
        let (count, burst) =
            (sum.count.saturating_add(one.count), sum.burst.saturating_add(one.burst));
        Rate::new(count, one.per(), burst)
    });
    // The queue delivers as soon as one shard does.
    limits.rate_open_at = limits.rate_open_at.zip(one.limits.rate_open_at).map(|(a, b)| a.min(b));
    limits.held_until = limits.held_until.max(one.limits.held_until);
}
