//! The size of a test run, in one place.

use std::time::Duration;

use delayline_core::Status;

/// The number of random sequences in a run, unless `DELAYLINE_CASES` says otherwise.
pub(crate) const DEFAULT_CASES: u32 = 1000;

/// All lists are compared after this many steps of a sequence.
pub(crate) const LIST_EVERY: usize = 8;

/// The statuses that can be listed.
pub(crate) const EVERY_STATUS: [Status; 4] =
    [Status::Scheduled, Status::Ready, Status::Leased, Status::Dead];

/// The most time for a hand-written case, unless the fixture says otherwise.
pub(crate) const CASE_TIME: Duration = Duration::from_secs(60);

/// The most time for a call.
pub(crate) const CALL_TIME: Duration = Duration::from_secs(20);

/// The most time to minimise a failing sequence.
pub(crate) const SHRINK_TIME: Duration = Duration::from_secs(60);

/// The number of clients in a concurrent history.
pub(crate) const HISTORY_TASKS: usize = 12;

/// The number of calls of each client.
pub(crate) const HISTORY_CALLS: usize = 60;

/// In the trial that replays traces, the queue is opened again after this many steps.
pub(crate) const REOPEN_EVERY: usize = 8;

/// The most times that a queue is opened again during a random sequence. At the end, it always is.
pub(crate) const MAX_REOPENINGS: usize = 2;

/// A queue is opened again in one random sequence per this many others.
pub(crate) const CASES_A_REOPENING: u32 = 20;

/// The last operation of one random sequence is dropped per this many others.
pub(crate) const CASES_A_DROP: u32 = 5;

/// The most polls of an operation that is then dropped.
pub(crate) const MOST_POLLS: u32 = 4;

/// Two clients take the steps of one random sequence per this many others.
pub(crate) const CASES_A_PAIR: u32 = 5;

/// There is one concurrent history per this many random sequences.
pub(crate) const CASES_A_ROUND: u32 = 200;
