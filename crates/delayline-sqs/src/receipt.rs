//! Receipt handles: opaque text that names a message of a queue, and its lease.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use delayline::backend::{ClaimId, Lease};
use delayline::message::MessageState;
use delayline::{MessageId, Timestamp};
use xxhash_rust::xxh3::xxh3_64;

use crate::error::{Code, Error};

/// A message and its lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Receipt {
    pub(crate) id: MessageId,
    pub(crate) lease: Lease,
    /// The position of the message in its queue. A FIFO queue keeps it beyond the deletion.
    pub(crate) sequence: u64,
}

impl Receipt {
    /// Writes the handle for a message of this queue.
    pub(crate) fn write(&self, queue: &str) -> String {
        let mut bytes = vec![VERSION];
        bytes.extend(xxh3_64(queue.as_bytes()).to_be_bytes());
        bytes.extend(self.lease.claim_id.as_bytes());
        bytes.extend(self.lease.epoch.to_be_bytes());
        bytes.extend(self.sequence.to_be_bytes());
        bytes.extend(self.id.as_bytes().iter());
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Reads the handle of a message of this queue.
    ///
    /// # Errors
    ///
    /// For a text that [`write`](Self::write) never returns for this queue.
    pub(crate) fn read(queue: &str, handle: &str) -> Result<Self, Error> {
        Self::parse(queue, handle).ok_or_else(|| {
            let shown: String = handle.chars().take(80).collect();
            let why =
                format!("The input receipt handle \"{shown}\" is not a valid receipt handle.");
            Error::new(Code::ReceiptHandleIsInvalid, why)
        })
    }

    fn parse(queue: &str, handle: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(handle).ok()?;
        let (version, rest) = bytes.split_first()?;
        let (of_queue, rest) = rest.split_first_chunk()?;
        let (claim_id, rest) = rest.split_first_chunk()?;
        let (epoch, rest) = rest.split_first_chunk()?;
        let (sequence, id) = rest.split_first_chunk()?;
        if *version != VERSION || u64::from_be_bytes(*of_queue) != xxh3_64(queue.as_bytes()) {
            return None;
        }
        let lease =
            Lease { claim_id: ClaimId::from_bytes(*claim_id), epoch: u64::from_be_bytes(*epoch) };
        let (id, sequence) = (MessageId::new(id.to_vec()).ok()?, u64::from_be_bytes(*sequence));
        Some(Self { id, lease, sequence })
    }

    fn key(&self) -> (u64, MessageId) {
        (self.sequence, self.id.clone())
    }
}

/// The latest receipts of messages that this server has delivered and not deleted, by the sequence
/// numbers of the messages. Shards count separately, so several messages may have the same.
#[derive(Default)]
pub(crate) struct Latest(Mutex<Receipts>);

#[derive(Default)]
struct Receipts {
    all: BTreeMap<(u64, MessageId), Received>,
    /// How many more are kept until old ones are forgotten.
    left: usize,
}

struct Received {
    receipt: Receipt,
    at: Timestamp,
    /// When the message was received first.
    first: Timestamp,
    /// The deadline of the lease.
    until: Timestamp,
}

impl Latest {
    /// Keeps a receipt of this time in place of an earlier one of its message, which is leased.
    /// Returns when the message was received first, which is `first` if there was no earlier one.
    pub(crate) fn keep(
        &self,
        receipt: &Receipt,
        at: Timestamp,
        first: Timestamp,
        state: &MessageState,
    ) -> Timestamp {
        let until = match state {
            MessageState::Leased { deadline, .. } => *deadline,
            _ => at,
        };
        let mut receipts = self.locked();
        let first = receipts.all.get(&receipt.key()).map_or(first, |earlier| earlier.first);
        receipts.all.insert(receipt.key(), Received { receipt: receipt.clone(), at, first, until });
        if receipts.left == 0 {
            // Other servers may have deleted their messages.
            receipts.all.retain(|_, it| at.since(it.until) < MOST_AGE);
            receipts.left = receipts.all.len().max(LEAST);
        }
        receipts.left -= 1;
        if receipts.all.len() > MOST_LATEST {
            receipts.all.pop_first();
        }
        first
    }

    /// Keeps a receipt for longer, since its lease was extended.
    pub(crate) fn extend(&self, receipt: &Receipt, deadline: Timestamp) {
        if let Some(latest) = self.locked().all.get_mut(&receipt.key()) {
            latest.until = deadline;
        }
    }

    /// Returns when the latest receipt of this one's message was given, if this server gave it: an
    /// earlier one than `receipt` is not the latest.
    pub(crate) fn received_at(&self, receipt: &Receipt) -> Option<Timestamp> {
        let receipts = self.locked();
        let latest = receipts.all.get(&receipt.key())?;
        (latest.receipt.lease.epoch >= receipt.lease.epoch).then_some(latest.at)
    }

    pub(crate) fn of(&self, sequence: u64, id: MessageId) -> Option<Receipt> {
        self.locked().all.get(&(sequence, id)).map(|latest| latest.receipt.clone())
    }

    /// Forgets a receipt. A later one of the same message stays.
    pub(crate) fn forget(&self, receipt: &Receipt) {
        let mut receipts = self.locked();
        if receipts.all.get(&receipt.key()).is_some_and(|latest| latest.receipt == *receipt) {
            receipts.all.remove(&receipt.key());
        }
    }

    fn locked(&self) -> MutexGuard<'_, Receipts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const VERSION: u8 = 1;
/// As many messages of a queue may be in flight in SQS.
const MOST_LATEST: usize = 120_000;
/// How many receipts are kept, at least, until old ones are forgotten.
const LEAST: usize = 1_000;
/// How long a receipt is kept beyond its lease: the message may be received again.
const MOST_AGE: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_return_and_others_are_refused() {
        let lease = Lease { claim_id: ClaimId::from_bytes([7; 16]), epoch: 3 };
        let receipt = Receipt { id: MessageId::try_from("order-1").unwrap(), lease, sequence: 7 };
        let handle = receipt.write("orders");
        assert_eq!(Receipt::read("orders", &handle), Ok(receipt));
        let wrong = ["", "x", "AQ", &handle[1..], &handle[..40], &format!("{handle}="), "\u{e4}"];
        for (queue, handle) in wrong.map(|it| ("orders", it)).into_iter().chain([("x", &*handle)]) {
            let error = Receipt::read(queue, handle).unwrap_err();
            assert_eq!(error.code(), Code::ReceiptHandleIsInvalid, "{queue} {handle}");
        }
    }

    #[test]
    fn receipts_of_messages_that_others_have_deleted_are_forgotten() {
        let latest = Latest::default();
        let receipt = |sequence| {
            let lease = Lease { claim_id: ClaimId::from_bytes([7; 16]), epoch: 1 };
            Receipt { id: MessageId::try_from("order-1").unwrap(), lease, sequence }
        };
        let at = |sequence: u64| Timestamp::from_ms(sequence * 1_000).unwrap();
        for sequence in 0..10_000 {
            let deadline = at(sequence + 30);
            let state = MessageState::Leased { deadline, cancel_requested: false };
            latest.keep(&receipt(sequence), at(sequence), at(sequence), &state);
            // The lease of the first is extended again and again.
            latest.extend(&receipt(0), deadline);
        }
        assert!(latest.locked().all.len() < 2 * LEAST);
        for sequence in [0, 9_700, 9_999] {
            assert!(latest.received_at(&receipt(sequence)).is_some(), "{sequence}");
        }
    }
}
