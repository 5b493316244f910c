//! What all requests share.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use delayline::message::{Message, MessageInfo};
use delayline::schedules::{Entry, Schedules};
use delayline::{Bytes, Connection};
use tokio_util::sync::CancellationToken;

use crate::body::Bodies;
use crate::brake::Brake;
use crate::directory::Directory;
use crate::examiner::Examiner;
use crate::latest::Latest;
use crate::pull::token::ClaimIds;
use crate::searches::Searches;
use crate::served::Served;
use crate::workers::Workers;
use crate::{Access, Role};

/// Removes what visitors must not see from a message of the named queue.
pub(crate) type Redact = dyn Fn(&str, &mut Message<Bytes>) + Send + Sync;

/// What all requests share.
pub(crate) struct Shared {
    pub(crate) access: Access,
    pub(crate) directory: Directory,
    pub(crate) examiner: Option<Examiner>,
    pub(crate) storage: Option<Connection>,
    pub(crate) workers: Option<Workers>,
    pub(crate) searches: Searches,
    pub(crate) schedules: Option<Schedules>,
    /// The queue of schedules, which is counted for metrics even if it is not shown.
    pub(crate) schedules_served: Option<Arc<Served>>,
    /// How long the schedules were overdue when they were last read.
    pub(crate) overdue: Mutex<Option<Duration>>,
    /// The schedules whose instants pictures show.
    pub(crate) entries: Latest<Arc<Vec<Entry>>>,
    pub(crate) bodies: Bodies,
    pub(crate) brake: Brake,
    pub(crate) contents_for: Role,
    pub(crate) redact: Option<Arc<Redact>>,
    pub(crate) claim_ids: ClaimIds,
    /// Ends all waits of consumers.
    pub(crate) stop: CancellationToken,
}

impl Shared {
    /// Returns a function that redacts messages of a queue as lists show them. It borrows nothing
    /// but the redaction.
    pub(crate) fn redactor(
        &self,
    ) -> impl Fn(&str, MessageInfo) -> MessageInfo + Send + Sync + use<> {
        let redact = self.redact.clone();
        move |queue, info| {
            let Some(redact) = &redact else { return info };
            let mut message = Message::new(info, Bytes::new());
            redact(queue, &mut message);
            message.info
        }
    }

    /// Whether messages are redacted.
    pub(crate) const fn redacts(&self) -> bool {
        self.redact.is_some()
    }

    pub(crate) fn redact(&self, queue: &str, message: &mut Message<Bytes>) {
        if let Some(redact) = &self.redact {
            redact(queue, message);
        }
    }
}
