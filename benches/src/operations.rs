//! Every operation, and the state of a queue that it is for.

use clap::ValueEnum;
use delayline_core::limits::{MAX_BATCH, MAX_LEASED, MAX_LOOK_UP, MAX_PAGE, MAX_RATE_COUNT};
use delayline_core::{
    At, Backend, Delivery, Destination, DestinationKey, Extend, HandOff, Known, List, MessageId,
    Millis, NewMessage, NewResult, Op, Outcome, Rate, Redrive, Relay, Reply, Reschedule, Schedule,
    SetLimits, Settlement, Status, Update, UpdateContent, UpdateDue, UpdateToken,
};

use crate::{ack, claim, deliveries, enqueue};

const HOUR: Millis = Millis::saturating(3_600_000);

/// An operation that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Measured {
    /// New messages, due at once.
    Enqueue,
    /// An enqueue whose ids are throttled for 1 ms.
    Throttle,
    /// New content for messages that wait.
    Debounce,
    /// Leases messages that are due.
    Claim,
    /// The same in a queue that limits leases and a rate.
    ClaimLimited,
    /// Moves messages that are due into a list.
    Relay,
    /// Settles leased messages.
    Ack,
    /// The same in a queue that limits leases and a rate.
    AckLimited,
    /// An ack that sends one message.
    HandOff,
    /// An ack with a result of 100 bytes.
    AckWithResult,
    /// Gives leased messages back for an hour.
    Retry,
    /// Extends leases.
    Extend,
    /// Removes waiting messages.
    Cancel,
    /// Moves waiting messages by an hour.
    Reschedule,
    /// Revives dead letters.
    Redrive,
    /// Reads messages.
    Get,
    /// Messages that are pending.
    Progress,
    /// Reads a page.
    List,
    /// Counts.
    Stats,
    /// Of 60 minutes.
    Forecast,
}

impl Measured {
    /// The largest batch that makes sense.
    #[must_use]
    pub const fn largest_batch(self) -> usize {
        match self {
            Self::Get => MAX_LOOK_UP,
            Self::List => MAX_PAGE,
            Self::Stats | Self::Forecast => 1,
            Self::HandOff => MAX_BATCH / 2,
            _ => MAX_BATCH,
        }
    }

    /// Brings a queue into the state that the operation is for, and returns the operation.
    /// Repeated, it makes room for one more.
    ///
    /// # Panics
    ///
    /// A preparing operation fails.
    #[expect(clippy::expect_used, reason = "documented")]
    pub async fn prepare(self, queue: &dyn Backend, batch: usize) -> Op {
        let sending = enqueue(batch);
        if matches!(self, Self::Enqueue) {
            return sending;
        }
        let Op::Enqueue(messages) = &sending else { unreachable!("it enqueues") };
        if matches!(self, Self::Throttle) {
            let message = |message: &NewMessage| message.clone().throttle(Millis::saturating(1));
            return Op::Enqueue(messages.iter().map(message).collect());
        }
        let ids: Vec<_> = messages.iter().map(|message| message.id.clone()).collect();
        apply(queue, &sending).await;
        if matches!(self, Self::ClaimLimited | Self::AckLimited) {
            apply(queue, &Op::SetLimits(wide_limits())).await;
        }
        match self {
            Self::Debounce => {
                let due = UpdateDue::Later { at_most: HOUR };
                let update = |message: &NewMessage| {
                    let token = UpdateToken::from_uuid(*b"a token, not 0.\0");
                    let update = Update::new(UpdateContent::Replace, due, token);
                    message.clone().payload(vec![b'u'; 100]).known(Known::Update(update))
                };
                Op::Enqueue(messages.iter().map(update).collect())
            }
            Self::Enqueue | Self::Throttle | Self::Claim | Self::ClaimLimited => claim(batch),
            Self::Relay => {
                let key = DestinationKey::try_from("relayed").expect("a short key");
                let to = Destination::List { key, max_len: None };
                Op::Relay(Relay::new(to, batch))
            }
            Self::Ack | Self::AckLimited => ack(&claimed(queue, batch).await),
            Self::HandOff => {
                let items = claimed(queue, batch).await;
                let items = items.iter().enumerate().map(|(n, delivery)| {
                    let (id, lease) = (id_of(delivery), delivery.lease);
                    let next = MessageId::new(format!("next-{id}")).expect("a short id");
                    let mut message = messages[n].clone();
                    message.id = next;
                    HandOff::new(Settlement::new(id, lease, Outcome::Ack), vec![message])
                });
                Op::HandOff(items.collect())
            }
            Self::AckWithResult => {
                let items = claimed(queue, batch).await;
                let items = items.iter().map(|delivery| {
                    let settlement = Settlement::new(id_of(delivery), delivery.lease, Outcome::Ack);
                    let result = NewResult::new(vec![b'r'; 100], HOUR);
                    HandOff::new(settlement, Vec::new()).with_result(result)
                });
                Op::HandOff(items.collect())
            }
            Self::Retry => {
                let error = "no luck".to_owned();
                settle(
                    &claimed(queue, batch).await,
                    &Outcome::Retry { schedule: Schedule::In(HOUR), error },
                )
            }
            Self::Extend => {
                let held = claimed(queue, batch).await;
                let leases =
                    held.iter().map(|delivery| (id_of(delivery), delivery.lease)).collect();
                Op::Extend(Extend::new(leases, Millis::saturating(30_000)))
            }
            Self::Cancel => Op::Cancel(ids),
            Self::Reschedule => {
                let later = |id| Reschedule::new(id, Schedule::In(HOUR));
                Op::Reschedule(ids.into_iter().map(later).collect())
            }
            Self::Redrive => {
                let held = claimed(queue, batch).await;
                apply(queue, &settle(&held, &Outcome::Reject { error: "bad".to_owned() })).await;
                Op::Redrive(Redrive::new(ids, Schedule::NOW))
            }
            Self::Get => Op::Get(ids),
            Self::Progress => Op::Progress(ids),
            Self::List => Op::List(List::new(Status::Ready, batch)),
            Self::Stats => Op::Stats,
            Self::Forecast => {
                Op::Forecast((1..=60).map(|minute| Millis::saturating(60_000 * minute)).collect())
            }
        }
    }
}

/// Limits that hold up nothing here.
fn wide_limits() -> SetLimits {
    let rate = Rate::per_second(MAX_RATE_COUNT, MAX_RATE_COUNT);
    SetLimits::new().leased(MAX_LEASED).rate(rate)
}

async fn claimed(queue: &dyn Backend, batch: usize) -> Vec<Delivery> {
    deliveries(&apply(queue, &claim(batch)).await, batch).to_vec()
}

fn settle(held: &[Delivery], outcome: &Outcome) -> Op {
    let settlement =
        |delivery: &Delivery| Settlement::new(id_of(delivery), delivery.lease, outcome.clone());
    Op::Settle(held.iter().map(settlement).collect())
}

fn id_of(delivery: &Delivery) -> MessageId {
    delivery.message.info.id.clone()
}

/// Applies an operation now, by the clock of the server.
///
/// # Panics
///
/// It fails: there is nothing to measure.
#[expect(clippy::expect_used, reason = "documented")]
pub async fn apply(queue: &dyn Backend, op: &Op) -> Reply {
    queue.apply(At::Server, op).await.expect("the operation succeeds").reply
}
