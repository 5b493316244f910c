//! What handlers share, and what they have seen.

use std::collections::HashMap;
use std::future::Future;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use delayline::{Job, Outcome};
use delayline_core::{Lease, MessageId};

use super::Bare;

/// What the handlers have seen.
#[derive(Debug, Default)]
pub(crate) struct Handled {
    deliveries: Mutex<HashMap<(MessageId, Lease), u32>>,
    wrong_payloads: AtomicU64,
}

impl Handled {
    /// How many deliveries there were, if nothing was wrong with them.
    pub(crate) fn check(&self) -> Result<usize, String> {
        let deliveries = self.deliveries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(((id, lease), count)) = deliveries.iter().find(|(_, count)| **count > 1) {
            return Err(format!("G5: {count} handlers began on {id} under {lease:?}"));
        }
        match self.wrong_payloads.load(Ordering::Relaxed) {
            0 => Ok(deliveries.len()),
            count => Err(format!("G2: {count} handlers got another payload than was sent")),
        }
    }

    pub(super) fn note(&self, job: &Job<Bytes>, right: bool) {
        self.wrong_payloads.fetch_add(u64::from(!right), Ordering::Relaxed);
        let mut deliveries = self.deliveries.lock().unwrap_or_else(PoisonError::into_inner);
        *deliveries.entry((job.id().clone(), job.lease())).or_default() += 1;
    }
}

/// What becomes of a job that is given to the clients of a queue.
pub(super) type Handler = fn(Job<Bytes>, Arc<Handled>, Bare) -> Ending;

pub(super) type Ending = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// The content of a message, from none to more than stands in a record.
pub(super) fn payload(n: u64) -> Bytes {
    let chance = hash(&n);
    let length = match chance % 10 {
        0 => 0,
        1 => 4_000 + chance / 10 % 3_000,
        _ => chance / 10 % 200,
    };
    (0..length).map(|place| chance.to_be_bytes()[usize::from(place % 8 == 3) * 5]).collect()
}

pub(super) fn hash(what: &impl std::hash::Hash) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(what)
}

pub(super) const LEASE: Duration = Duration::from_millis(400);
