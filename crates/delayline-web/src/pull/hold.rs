//! Leases that were granted and have not been answered yet.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use delayline::backend::{ClaimId, Delivery, Lease, Millis, Op, Outcome, Settlement};
use delayline::codec::Raw;
use delayline::message::MessageState;
use delayline::{Bytes, MessageId, Queue, Timestamp};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tracing::Instrument as _;

/// The claims that are being answered, by claim id. A repeated claim shares the entry of the first.
#[derive(Default)]
pub struct Claims {
    answers: Mutex<Answers>,
    /// Leases were released: their messages can be claimed.
    pub(super) released: Notify,
}

#[derive(Default)]
struct Answers {
    by_id: HashMap<ClaimId, Answering>,
    /// Claims that were answered, and when their last request ended.
    answered: VecDeque<(Instant, ClaimId)>,
}

struct Answering {
    /// The requests and claims of this id under way.
    live: usize,
    /// A client has been sent the leases.
    delivered: bool,
    leases: Leases,
    /// While the leases are released: closed at the end.
    releasing: Option<watch::Receiver<()>>,
}

impl Claims {
    fn lock(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Answers {
    /// Forgets claims that were answered a while ago.
    fn forget(&mut self) {
        while self.answered.front().is_some_and(|(ended, _)| ended.elapsed() > REMEMBERED) {
            let Some((_, claim_id)) = self.answered.pop_front() else { return };
            if self.by_id.get(&claim_id).is_some_and(|entry| entry.live == 0) {
                self.by_id.remove(&claim_id);
            }
        }
    }
}

/// Leases, with the ids of their messages.
type Leases = Vec<(MessageId, Lease)>;

/// A share in a claim. When the last one is dropped before the leases were handed to a connection,
/// they are released.
pub struct Hold {
    claims: Arc<Claims>,
    queue: Queue<Bytes, Raw>,
    claim_id: ClaimId,
}

impl Hold {
    /// Begins a claim, or repeats one. If the leases of an earlier request of this id are being
    /// released, waits for that: they must not end while the repeated claim returns them.
    pub async fn new(claims: &Arc<Claims>, queue: &Queue<Bytes, Raw>, claim_id: ClaimId) -> Self {
        loop {
            let releasing = {
                let mut answers = claims.lock();
                let entry = answers.by_id.entry(claim_id).or_insert_with(|| Answering {
                    live: 0,
                    delivered: false,
                    leases: Vec::new(),
                    releasing: None,
                });
                let releasing = entry.releasing.clone();
                entry.live += usize::from(releasing.is_none());
                releasing
            };
            match releasing {
                None => return Self { claims: Arc::clone(claims), queue: queue.clone(), claim_id },
                // It ends with an error: the sender is dropped.
                Some(mut end) => drop(end.changed().await),
            }
        }
    }

    /// Notes the leases of `lease` that the queue has granted at `at`.
    ///
    /// Those of a repeated claim were granted earlier, so their deadline is nearer. They are left
    /// alone: a request of the same claim, perhaps to another server, may have answered them.
    pub(crate) fn granted(&self, deliveries: &[Delivery], at: Timestamp, lease: Millis) {
        let is_new = |it: &&Delivery| match it.message.info.state {
            MessageState::Leased { deadline, .. } => deadline.since(at) == Duration::from(lease),
            _ => false,
        };
        let new = deliveries.iter().filter(is_new);
        let leases: Vec<_> = new.map(|it| (it.message.info.id.clone(), it.lease)).collect();
        if leases.is_empty() {
            return;
        }
        if let Some(entry) = self.claims.lock().by_id.get_mut(&self.claim_id) {
            entry.leases = leases;
        }
    }

    /// Notes that the connection has the answer.
    pub fn delivered(&self) {
        if let Some(entry) = self.claims.lock().by_id.get_mut(&self.claim_id) {
            entry.delivered = true;
        }
    }

    /// Ends the share. Returns the leases to release, if it was the last one.
    fn end(&self) -> Option<(Leases, Releasing)> {
        let mut claims = self.claims.lock();
        claims.forget();
        let entry = claims.by_id.get_mut(&self.claim_id)?;
        entry.live = entry.live.saturating_sub(1);
        if entry.live > 0 {
            return None;
        }
        if entry.delivered {
            entry.leases = Vec::new();
            claims.answered.push_back((Instant::now(), self.claim_id));
            return None;
        }
        if entry.leases.is_empty() {
            claims.by_id.remove(&self.claim_id);
            return None;
        }
        let (end, ended) = watch::channel(());
        entry.releasing = Some(ended);
        let leases = std::mem::take(&mut entry.leases);
        let (claims, claim_id) = (Arc::clone(&self.claims), self.claim_id);
        Some((leases, Releasing { claims, claim_id, _end: end }))
    }
}

/// The release of leases. When this is dropped, also because the queue panics or the runtime ends,
/// the next request of the claim continues.
struct Releasing {
    claims: Arc<Claims>,
    claim_id: ClaimId,
    /// Dropped after the entry is removed.
    _end: watch::Sender<()>,
}

impl Drop for Releasing {
    fn drop(&mut self) {
        self.claims.lock().by_id.remove(&self.claim_id);
        self.claims.released.notify_one();
    }
}

impl Clone for Hold {
    fn clone(&self) -> Self {
        if let Some(entry) = self.claims.lock().by_id.get_mut(&self.claim_id) {
            entry.live += 1;
        }
        let Self { claims, queue, claim_id } = self;
        Self { claims: Arc::clone(claims), queue: queue.clone(), claim_id: *claim_id }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let Some((leases, releasing)) = self.end() else { return };
        let queue = self.queue.clone();
        let release = async move {
            let messages = leases.len();
            let release = |(id, lease)| Settlement::new(id, lease, Outcome::Release);
            let op = Op::Settle(leases.into_iter().map(release).collect());
            match queue.apply(&op).await {
                Ok(_) => tracing::debug!(
                    messages,
                    "released messages that a client did not wait \
                                                    for"
                ),
                Err(error) => tracing::warn!(
                    messages,
                    %error,
                    "messages that a client did not wait for stay leased until their leases expire"
                ),
            }
            drop(releasing);
        };
        // Without a runtime, the leases expire.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(release.in_current_span());
        }
    }
}

/// How long an answered claim is remembered. A late request of the same claim must not release its
/// leases, and deadlines tell old leases from new ones only to the millisecond.
const REMEMBERED: Duration = Duration::from_secs(2);
