//! The statuses whose messages can be listed.

use delayline_core::Status;

/// The status of a live message, for [`Queue::list`](crate::Queue::list). A queue does not list
/// messages that have finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Listed {
    /// Waiting until it is due. Listed by priority, then due time; messages with a group come last.
    Scheduled,
    /// Due, and waiting for a worker. Listed by priority, then due time. Messages with a group come
    /// last: messages that wait for a turn by group, then the others by due time.
    Ready,
    /// Held by a worker. Listed by the end of the lease.
    Leased,
    /// A dead letter. Listed by the time of death.
    Dead,
}

impl Listed {
    /// All of them.
    pub const ALL: &'static [Self] = &[Self::Scheduled, Self::Ready, Self::Leased, Self::Dead];
}

impl From<Listed> for Status {
    fn from(listed: Listed) -> Self {
        match listed {
            Listed::Scheduled => Self::Scheduled,
            Listed::Ready => Self::Ready,
            Listed::Leased => Self::Leased,
            Listed::Dead => Self::Dead,
        }
    }
}

impl Listed {
    /// Returns the status as one that can be listed, or `None` for a finished one.
    #[must_use]
    pub fn of(status: Status) -> Option<Self> {
        Self::ALL.iter().copied().find(|&listed| Status::from(listed) == status)
    }

    /// Returns the name used in JSON: `scheduled`, `ready`, `leased` or `dead`.
    #[must_use]
    pub fn name(self) -> &'static str {
        Status::from(self).name()
    }
}
