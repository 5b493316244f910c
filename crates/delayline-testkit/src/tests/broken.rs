//! Backends with one defect each.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use delayline_core::{
    Applied, At, Backend, Cancelled, ConsumerName, Error, FinishedIds, Found, Lease, MessageId,
    Millis, NewMessage, Op, Outcome, Reply, Schedule, Settlement, Timestamp, Wakeup,
};

use super::model::Model;

/// Defines the defects, and the list of them.
macro_rules! defects {
    ($($defect:ident)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Defect {
            $($defect,)*
        }

        impl Defect {
            pub(super) const ALL: &[Self] = &[$(Self::$defect),*];
        }
    };
}

defects! {
    ClaimsAreEarly
    ClaimsAreLate
    ClaimsAreNotRemembered
    ClaimsTakeOneMore
    LeasesLastAMillisecondLonger
    SettlementsAreNotFenced
    ExtensionsAreNotFenced
    SnoozesCount
    ReleasesWait
    ErrorsAreCutAtNul
    CancelWishesAreForgotten
    FinishedIdsAreForgotten
    ExpiryIsIgnored
    PayloadsAreText
    HeadersAreDropped
    DelaysAreRounded
    RedrivesAreAtOnce
    ReadsRaiseTheRevision
    PausesAreIgnored
    PagesStartOver
    LimitsAreNotChecked
}

#[derive(Debug)]
pub(super) struct Broken {
    model: Model,
    defect: Defect,
    calls: AtomicU64,
}

impl Broken {
    pub(super) fn new(defect: Defect) -> Self {
        Self { model: Model::default(), defect, calls: AtomicU64::new(0) }
    }

    /// Returns the operation as the defect changes it.
    async fn spoilt(&self, now: Timestamp, op: Op) -> Op {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        match (self.defect, op) {
            (Defect::ClaimsAreNotRemembered, Op::Claim(mut claim)) => {
                claim.consumer = ConsumerName::new(format!("consumer {number}")).unwrap();
                Op::Claim(claim)
            }
            (Defect::ClaimsTakeOneMore, Op::Claim(mut claim)) => {
                claim.max = claim.max.max(2);
                Op::Claim(claim)
            }
            (Defect::LeasesLastAMillisecondLonger, Op::Claim(mut claim)) => {
                claim.lease = Millis::saturating((claim.lease.as_ms() + 1).min(86_400_000));
                Op::Claim(claim)
            }
            (Defect::SettlementsAreNotFenced, Op::Settle(items)) => {
                let mut unfenced = Vec::new();
                for mut item in items {
                    item.lease = self.current(now, &item.id, item.lease).await;
                    unfenced.push(item);
                }
                Op::Settle(unfenced)
            }
            (Defect::ExtensionsAreNotFenced, Op::Extend(mut extend)) => {
                let mut leases = Vec::new();
                for (id, lease) in extend.leases {
                    let lease = self.current(now, &id, lease).await;
                    leases.push((id, lease));
                }
                extend.leases = leases;
                Op::Extend(extend)
            }
            (_, Op::Settle(items)) => Op::Settle(
                items
                    .into_iter()
                    .map(|item| Settlement::new(item.id, item.lease, self.outcome(item.outcome)))
                    .collect(),
            ),
            (_, Op::Enqueue(messages)) => {
                Op::Enqueue(messages.into_iter().map(|message| self.message(message)).collect())
            }
            (Defect::RedrivesAreAtOnce, Op::Redrive(mut redrive)) => {
                redrive.schedule = Schedule::NOW;
                Op::Redrive(redrive)
            }
            (Defect::PausesAreIgnored, Op::Pause) => Op::Stats,
            (Defect::PagesStartOver, Op::List(mut list)) => {
                list.after = None;
                Op::List(list)
            }
            (_, op) => op,
        }
    }

    fn outcome(&self, outcome: Outcome) -> Outcome {
        match (self.defect, outcome) {
            (Defect::SnoozesCount, Outcome::Snooze { schedule }) => {
                Outcome::Retry { schedule, error: String::new() }
            }
            (Defect::ReleasesWait, Outcome::Release) => {
                Outcome::Snooze { schedule: Schedule::In(Millis::saturating(1)) }
            }
            (Defect::ErrorsAreCutAtNul, Outcome::Reject { error }) => {
                let error = error.split('\0').next().unwrap().to_owned();
                Outcome::Reject { error }
            }
            (_, outcome) => outcome,
        }
    }

    fn message(&self, mut message: NewMessage) -> NewMessage {
        match self.defect {
            Defect::FinishedIdsAreForgotten => message.finished_ids = FinishedIds::Reuse,
            Defect::ExpiryIsIgnored => message.expires = None,
            Defect::PayloadsAreText => {
                message.payload =
                    String::from_utf8_lossy(&message.payload).into_owned().into_bytes().into();
            }
            Defect::HeadersAreDropped => message.headers = delayline_core::Headers::new(),
            Defect::DelaysAreRounded => {
                message.schedule = match message.schedule {
                    Schedule::At(instant) => Schedule::At(instant),
                    Schedule::In(delay) => Schedule::In(Millis::saturating(delay.as_ms() / 2 * 2)),
                };
            }
            _ => {}
        }
        message
    }

    /// Returns the message's current lease, whatever lease was presented.
    async fn current(&self, now: Timestamp, id: &MessageId, shown: Lease) -> Lease {
        let get = self.model.apply(At::Fixed(now), &Op::Get(vec![id.clone()])).await.unwrap();
        match get.reply {
            Reply::Get(found) => match &found[..] {
                // Only the epoch, as if the token did not matter.
                [Found::Live(message)] => Lease { epoch: message.info.epoch, ..shown },
                _ => shown,
            },
            _ => shown,
        }
    }

    async fn cancel_without_wish(
        &self,
        now: Timestamp,
        ids: &[MessageId],
    ) -> Result<Applied, Error> {
        let mut answers = Vec::new();
        let mut last = self.model.apply(At::Fixed(now), &Op::Stats).await?;
        for id in ids {
            let get = self.model.apply(At::Fixed(now), &Op::Get(vec![id.clone()])).await?;
            let leased = matches!(&get.reply, Reply::Get(found) if matches!(&found[..],
                [Found::Live(message)] if message.info.state.status() == delayline_core::Status::Leased));
            if leased {
                answers.push(Cancelled::InFlight);
                continue;
            }
            last = self.model.apply(At::Fixed(now), &Op::Cancel(vec![id.clone()])).await?;
            if let Reply::Cancel(items) = &last.reply {
                answers.extend(items);
            }
        }
        last.reply = Reply::Cancel(answers);
        Ok(last)
    }
}

#[async_trait]
impl Backend for Broken {
    async fn apply(&self, at: At, op: &Op) -> Result<Applied, Error> {
        let At::Fixed(now) = at else { return self.model.apply(at, op).await };
        if self.defect != Defect::LimitsAreNotChecked {
            op.validate()?;
        }
        if op.validate().is_err() {
            return self.model.apply(at, &Op::Stats).await;
        }
        let spoilt = self.spoilt(now, op.clone()).await;
        let claims = matches!(op, Op::Claim(_));
        let then = match self.defect {
            Defect::ClaimsAreEarly if claims => now.after(Millis::saturating(1)),
            Defect::ClaimsAreLate if claims => {
                Timestamp::from_ms(now.as_ms().saturating_sub(1)).unwrap()
            }
            _ => now,
        };
        if self.defect == Defect::CancelWishesAreForgotten
            && let Op::Cancel(ids) = op
        {
            return self.cancel_without_wish(now, ids).await;
        }
        let mut applied = self.model.apply(At::Fixed(then), &spoilt).await?;
        applied.at = now;
        if self.defect == Defect::ReadsRaiseTheRevision && matches!(op, Op::List(_)) {
            applied.revision += 1;
        }
        if self.defect == Defect::PausesAreIgnored && *op == Op::Pause {
            applied.reply = Reply::Pause { changed: true };
        }
        Ok(applied)
    }
}

#[async_trait]
impl Wakeup for Broken {
    async fn wait(&self, _: Duration) -> Result<bool, Error> {
        Ok(false)
    }
}
