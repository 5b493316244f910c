//! Receipt handles: opaque text that names a message of a queue, and its lease.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use delayline::backend::{ClaimId, Lease};
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
pub(crate) struct Latest(Mutex<BTreeMap<(u64, MessageId), Received>>);

struct Received {
    receipt: Receipt,
    at: Timestamp,
    /// When the message was received first.
    first: Timestamp,
}

impl Latest {
    /// Keeps a receipt of this time in place of an earlier one of its message. Returns when the
    /// message was received first, which is `first` if there was no earlier one.
    pub(crate) fn keep(&self, receipt: &Receipt, at: Timestamp, first: Timestamp) -> Timestamp {
        let mut receipts = self.locked();
        let first = receipts.get(&receipt.key()).map_or(first, |earlier| earlier.first);
        receipts.insert(receipt.key(), Received { receipt: receipt.clone(), at, first });
        if receipts.len() > MOST_LATEST {
            receipts.pop_first();
        }
        first
    }

    /// Returns when the latest receipt of this one's message was given, if this server gave it: an
    /// earlier one than `receipt` is not the latest.
    pub(crate) fn received_at(&self, receipt: &Receipt) -> Option<Timestamp> {
        let receipts = self.locked();
        let latest = receipts.get(&receipt.key())?;
        (latest.receipt.lease.epoch >= receipt.lease.epoch).then_some(latest.at)
    }

    pub(crate) fn of(&self, sequence: u64, id: MessageId) -> Option<Receipt> {
        self.locked().get(&(sequence, id)).map(|latest| latest.receipt.clone())
    }

    /// Forgets a receipt. A later one of the same message stays.
    pub(crate) fn forget(&self, receipt: &Receipt) {
        let mut receipts = self.locked();
        if receipts.get(&receipt.key()).is_some_and(|latest| latest.receipt == *receipt) {
            receipts.remove(&receipt.key());
        }
    }

    fn locked(&self) -> MutexGuard<'_, BTreeMap<(u64, MessageId), Received>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const VERSION: u8 = 1;
/// As many messages of a queue may be in flight in SQS.
const MOST_LATEST: usize = 120_000;

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
}
