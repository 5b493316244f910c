//! A backend that does not use `State`, and knows the library by the modules of the facade alone:
//! all that an operation asks is reachable, and every reply can be built.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use delayline::backend::{
    Applied, At, Backend, Cancelled, Checked, Claim, Claimed, Completion, Death, DeathReason,
    Delivery, Enqueued, Error, ErrorKind, Extended, Follower, Forecast, Found, HandedOff, History,
    HistoryPoint, Lease, Message, MessageId, MessageInfo, MessageState, NewMessage, Op, Outcome,
    Page, Purged, Redriven, Relayed, Reply, Rescheduled, Settled, Settlement, Stats, Status,
    Timestamp, Wakeup, async_trait,
};
use delayline::{Bytes, Job, Queue, Worker};
use delayline_testkit::workload;

/// Keeps messages in the order of their arrival. It knows no retries, no dead letters and no
/// schedule: what it cannot do has the emptiest answer there is.
#[derive(Debug, Default)]
struct Shelf {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    messages: Vec<(Message, Option<Lease>)>,
    sequence: u64,
    revision: u64,
}

impl Kept {
    fn answer(&mut self, now: Timestamp, op: &Op) -> Result<Reply, Error> {
        Ok(match op {
            Op::Enqueue(messages) => Reply::Enqueue(self.enqueue(now, messages)),
            Op::Claim(claim) => Reply::Claim(self.claim(now, claim)),
            Op::Relay(_) => {
                let mut relayed = Relayed::default();
                relayed.held_back = true;
                Reply::Relay(relayed)
            }
            Op::Settle(items) => {
                Reply::Settle(items.iter().map(|item| self.settle(item)).collect())
            }
            Op::HandOff(items) => {
                let results = items.iter().map(|item| match self.settle(&item.settlement) {
                    done @ Settled::Done { .. } => {
                        HandedOff::new(done, self.enqueue(now, &item.messages))
                    }
                    other => HandedOff::new(other, Vec::new()),
                });
                Reply::HandOff(results.collect())
            }
            Op::Extend(extend) => {
                let deadline = now.after(extend.lease);
                let held = |id, lease| self.find(id).is_some_and(|(_, held)| held == Some(lease));
                let results = extend.leases.iter().map(|(id, lease)| match held(id, *lease) {
                    true => Extended::Done { deadline, cancel_requested: false },
                    false => Extended::Missing,
                });
                Reply::Extend(results.collect())
            }
            Op::Cancel(ids) => Reply::Cancel(
                ids.iter()
                    .map(|id| match self.find(id) {
                        Some((_, Some(_))) => Cancelled::InFlight,
                        Some((_, None)) => {
                            self.remove(id);
                            Cancelled::Cancelled
                        }
                        None => Cancelled::NotFound,
                    })
                    .collect(),
            ),
            Op::Reschedule(items) => Reply::Reschedule(vec![Rescheduled::NotFound; items.len()]),
            Op::Redrive(redrive) => Reply::Redrive(vec![Redriven::NotDead; redrive.ids.len()]),
            Op::Purge(ids) => Reply::Purge(vec![Purged::NotDead; ids.len()]),
            Op::Pause => Reply::Pause { changed: false },
            Op::Resume => Reply::Resume { changed: false },
            Op::SetLimits(_) => Reply::SetLimits { changed: false },
            Op::Get(ids) => {
                let found = ids.iter().map(|id| match self.find(id) {
                    Some((message, _)) => Found::Live(Box::new(message)),
                    None => Found::Unknown,
                });
                Reply::Get(found.collect())
            }
            // It keeps no results.
            Op::Progress(ids) => {
                let told = ids.iter().map(|id| match self.find(id) {
                    Some(_) => Completion::Pending,
                    None => Completion::Unknown,
                });
                Reply::Progress(told.collect())
            }
            Op::List(list) => {
                let mut page = Page::default();
                let infos = self.messages.iter().map(|(message, _)| &message.info);
                let listed = infos.filter(|info| info.state.status() == list.status);
                page.messages = listed.take(list.limit).cloned().collect();
                Reply::List(page)
            }
            Op::Stats => Reply::Stats(Box::new(self.stats())),
            Op::Forecast(delays) => {
                let mut forecast = Forecast::default();
                forecast.ready = self.stats().ready;
                forecast.due = vec![0; delays.len()];
                Reply::Forecast(forecast)
            }
            Op::History(_) => {
                let stats = self.stats();
                let mut point = HistoryPoint::default();
                (point.at, point.ready, point.leased) = (now, stats.ready, stats.leased);
                point.totals = stats.totals;
                Reply::History(History::new(vec![point]))
            }
            Op::Check(_) => Reply::Check(self.check()),
            Op::Repair(_) => Reply::Repair(self.check()),
            unknown => return Err(Error::new(ErrorKind::Unsupported(unknown.name()))),
        })
    }

    fn enqueue(&mut self, now: Timestamp, messages: &[NewMessage]) -> Vec<Enqueued> {
        let enqueue = |message: &NewMessage| {
            if let Some((known, _)) = self.find(&message.id) {
                return Enqueued::Duplicate { status: known.info.state.status() };
            }
            self.sequence += 1;
            let (id, state) = (message.id.clone(), MessageState::Ready);
            let mut info = MessageInfo::new(id, state, self.sequence, now, now);
            info.priority = message.priority;
            info.payload_bytes = message.payload.len();
            let mut stored = Message::new(info, message.payload.clone());
            stored.headers = message.headers.clone();
            self.messages.push((stored, None));
            Enqueued::Created { due: now }
        };
        messages.iter().map(enqueue).collect()
    }

    fn claim(&mut self, now: Timestamp, claim: &Claim) -> Claimed {
        let mut claimed = Claimed::default();
        let free = self.messages.iter_mut().filter(|(_, lease)| lease.is_none());
        for (message, lease) in free.take(claim.max) {
            message.info.epoch += 1;
            let deadline = now.after(claim.lease);
            message.info.state = MessageState::Leased { deadline, cancel_requested: false };
            let granted = Lease { claim_id: claim.claim_id, epoch: message.info.epoch };
            *lease = Some(granted);
            claimed.deliveries.push(Delivery::new(message.clone(), granted));
        }
        claimed
    }

    fn settle(&mut self, item: &Settlement) -> Settled {
        match self.find(&item.id) {
            None => return Settled::Missing,
            Some((_, lease)) if lease != Some(item.lease) => return Settled::Stale,
            Some(_) => {}
        }
        if matches!(item.outcome, Outcome::Ack | Outcome::Reject { .. }) {
            self.remove(&item.id);
            return Settled::Done { status: Status::Acked };
        }
        for (message, lease) in &mut self.messages {
            if message.info.id == item.id {
                (message.info.state, *lease) = (MessageState::Ready, None);
            }
        }
        Settled::Done { status: Status::Ready }
    }

    fn find(&self, id: &MessageId) -> Option<(Message, Option<Lease>)> {
        self.messages.iter().find(|(message, _)| message.info.id == *id).cloned()
    }

    fn remove(&mut self, id: &MessageId) {
        self.messages.retain(|(message, _)| message.info.id != *id);
    }

    fn stats(&self) -> Stats {
        let leased = self.messages.iter().filter(|(_, lease)| lease.is_some()).count();
        let mut stats = Stats::default();
        stats.leased = leased as u64;
        stats.ready = (self.messages.len() - leased) as u64;
        stats.totals.enqueued = self.sequence;
        stats
    }

    fn check(&self) -> Checked {
        let mut checked = Checked::default();
        checked.examined = self.messages.len() as u64;
        checked
    }
}

#[async_trait]
impl Backend for Shelf {
    async fn apply(&self, at: At, op: &Op) -> Result<Applied, Error> {
        op.validate()?;
        let now = match at {
            At::Fixed(instant) => instant,
            At::Server => Timestamp::MIN,
        };
        let mut kept = self.kept.lock().unwrap();
        let reply = kept.answer(now, op)?;
        kept.revision += u64::from(!op.is_read_only());
        Ok(Applied::new(now, kept.revision, reply))
    }
}

#[async_trait]
impl Wakeup for Shelf {
    async fn wait(&self, timeout: Duration) -> Result<bool, Error> {
        tokio::time::sleep(timeout).await;
        Ok(false)
    }
}

/// What a dead letter and a follower look like, which this backend never has.
#[test]
fn every_part_of_a_reply_can_be_built() {
    let id = MessageId::new("order-1").unwrap();
    let death = Death::new(id.clone(), DeathReason::Expired);
    let mut follower = Follower::new(Timestamp::MIN, Timestamp::MAX);
    follower.payload_bytes = 5;
    let state = MessageState::Dead { reason: death.reason, since: Timestamp::MIN };
    let info = MessageInfo::new(id, state, 1, Timestamp::MIN, Timestamp::MIN);
    let mut message = Message::new(info, Bytes::from_static(b"hello"));
    message.follower = Some(follower);
    assert_eq!(message.info.state.status(), Status::Dead);
}

#[tokio::test]
async fn a_program_uses_it() {
    let queue: Queue<String> = Queue::new(Arc::new(Shelf::default()));
    for text in ["one", "two", "three"] {
        queue.send(&text.to_owned()).await.unwrap();
    }
    let worker = Worker::builder(queue.clone()).until_empty(true).build().unwrap();
    let summary = worker
        .run(|job: Job<String>| async move {
            assert!(job.payload().len() > 2);
            Ok::<(), std::io::Error>(())
        })
        .await;
    assert_eq!(summary.acked, 3);
    assert_eq!(queue.stats().await.unwrap().ready, 0);
}

/// The generator makes every operation there is, so a new one has to be reachable from here.
#[tokio::test]
async fn it_answers_every_operation() {
    let mut seen = BTreeSet::new();
    for seed in 0..200_u32 {
        let mut state = seed.wrapping_mul(2_654_435_761) | 1;
        let chance = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state.to_le_bytes()
        });
        let bytes: Vec<u8> = chance.take(100).flatten().collect();
        let shelf = Shelf::default();
        for step in workload::trace_from_bytes(&bytes).steps {
            match shelf.apply(At::Fixed(step.at), &step.op).await {
                Ok(_) => _ = seen.insert(step.op.name()),
                Err(error) => assert!(
                    matches!(error.kind(), ErrorKind::Invalid(_)),
                    "{step} was answered {error}"
                ),
            }
        }
    }
    assert!(Op::NAMES.iter().all(|name| seen.contains(name)), "seen: {seen:?}");
}
