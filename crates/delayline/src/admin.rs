//! The results of calls for operators, which examine or change a queue, a server or all its queues.
//!
//! [`Queue::stats`](crate::Queue::stats), [`history`](crate::Queue::history),
//! [`forecast`](crate::Queue::forecast) and [`explain`](crate::Queue::explain) look into a queue;
//! [`list`](crate::Queue::list) and [`dead_letters`](crate::Queue::dead_letters) go through its
//! messages; [`set_limits`](crate::Queue::set_limits) limits deliveries;
//! [`check`](crate::Queue::check) and [`repair`](crate::Queue::repair) examine it.
//! [`Queue::transfer_to`](crate::Queue::transfer_to) moves messages to another queue.
//! [`Connection::queues_within`](crate::Connection::queues_within) finds queues,
//! [`Connection::workers`](crate::Connection::workers) the processes with workers, and
//! `Connect::survey` and `Connection::inspect` examine servers, and
//! [`Connection::directory_status`](crate::Connection::directory_status) a directory, which
//! [`Connect::backup`](crate::Connect::backup) copies.

pub use delayline_core::{
    Finding, Forecast, History, HistoryPoint, Limits, Position, ProcessId, Purged, QueueName, Rate,
    Redriven, Resolution, SetLimits, Stats, Totals,
};
pub use delayline_redis_protocol::{
    AclRole, Denial, Inspection, Removal, SentinelReport, SentinelView, ServerReport, Survey,
    TopologyKind, Upgrade, WorkerProcess,
};

pub use crate::directory_status::{Backup, DirectoryStatus, SyncTimes};
pub use crate::queue::{
    Audit, DeadLetterFilter, Explanation, Listed, Listing, Transfer, folded_error,
};
pub use crate::store::{FoundQueues, FoundWorkers};
