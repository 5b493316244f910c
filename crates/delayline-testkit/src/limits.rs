//! How much the suite does, in one place.

use std::time::Duration;

use delayline_core::Status;

/// Random sequences of one run, unless `DELAYLINE_CASES` says otherwise.
pub(crate) const DEFAULT_CASES: u32 = 1000;

/// How many steps of a sequence lie between two comparisons of all lists.
pub(crate) const LIST_EVERY: usize = 8;

/// The statuses that can be listed.
pub(crate) const EVERY_STATUS: [Status; 4] =
    [Status::Scheduled, Status::Ready, Status::Leased, Status::Dead];

/// How long a hand-written case may take.
pub(crate) const CASE_TIME: Duration = Duration::from_secs(60);

/// How long a failing sequence is cut down at most.
pub(crate) const SHRINK_TIME: Duration = Duration::from_secs(60);

/// Clients of one concurrent history.
pub(crate) const HISTORY_TASKS: usize = 12;

/// Calls of each client.
pub(crate) const HISTORY_CALLS: usize = 60;

/// For how many random sequences there is one concurrent history.
pub(crate) const CASES_A_ROUND: u32 = 200;
