//! All limits of the contract, each with its unit in its name.
//!
//! A value beyond a limit is a [`Violation`](crate::Violation), found before anything is sent. The
//! limits keep each operation bounded (G23). Even at the limits, a script stays within what Lua's
//! `unpack` accepts, and takes a Redis server a few milliseconds.

/// Longest message id, in bytes. Ids are at least one byte long.
pub const MAX_ID_BYTES: usize = 128;

/// Longest name of a message's group, in bytes. Names are at least one byte long.
pub const MAX_MESSAGE_GROUP_BYTES: usize = 128;

/// Longest consumer name, in bytes. Names are at least one byte long.
pub const MAX_CONSUMER_BYTES: usize = 64;

/// Longest queue name, in bytes. Names are at least one byte long.
pub const MAX_QUEUE_NAME_BYTES: usize = 128;

/// Minimum number of shards of a sharded queue.
pub const MIN_SHARDS: u32 = 2;

/// Maximum number of shards of a sharded queue.
pub const MAX_SHARDS: u32 = 64;

/// Largest payload of a message, in bytes.
pub const MAX_PAYLOAD_BYTES: usize = 1024 * 1024;

/// Maximum number of headers of a message.
pub const MAX_HEADERS: usize = 32;

/// Largest encoded size of all headers of a message, in bytes.
pub const MAX_HEADERS_BYTES: usize = 8 * 1024;

/// Longest kind of a payload, in bytes: see [`Headers::KIND`](crate::Headers::KIND).
pub const MAX_KIND_BYTES: usize = 64;

/// Longest error text stored with a failed message, in bytes.
pub const MAX_ERROR_BYTES: usize = 1024;

/// Maximum number of attempts stored with a message: the latest ones.
pub const MAX_ATTEMPTS: usize = 8;

/// Longest error text stored with an attempt, in bytes.
pub const MAX_ATTEMPT_ERROR_BYTES: usize = 120;

/// Largest checkpoint of a message, in bytes.
pub const MAX_CHECKPOINT_BYTES: usize = 4 * 1024;

/// Longest text of a message's progress, in bytes.
pub const MAX_PROGRESS_TEXT_BYTES: usize = 256;

/// Highest number of a save: all integers up to it are exact in a script's numbers.
pub const MAX_SAVE_NUMBER: u64 = (1 << 53) - 1;

/// Maximum number of items in one enqueue, settle, extend, cancel, reschedule, redrive or purge.
/// Also the maximum number of settlements and messages together in one hand-off, and of messages in
/// one claim or relay.
pub const MAX_BATCH: usize = 1000;

/// Maximum number of messages that one settlement of a hand-off carries.
pub const MAX_FOLLOW_UPS: usize = 100;

/// Maximum number of payload and header bytes of an update. Updates are stored with the message
/// that they follow, and a thousand of them may take effect in one settlement. So they must be
/// smaller than other messages.
pub const MAX_UPDATE_BYTES: usize = 16 * 1024;

/// The number of updates of an id whose tokens are remembered: repeating one of them changes
/// nothing (G15).
pub const MAX_UPDATE_TOKENS: usize = 4;

/// Longest time for which an id is throttled, in milliseconds: 31 days.
pub const MAX_THROTTLE_MS: u64 = 31 * 86_400_000;

/// Maximum number of ids of one queue that are throttled at a time.
pub const MAX_THROTTLED_IDS: usize = 100_000;

/// Maximum number of payload and header bytes in one enqueue, of these and results in one hand-off,
/// and of bytes that one settlement, hand-off or extension saves. A claim or relay stops before the
/// message whose payload, headers and saves would exceed it, but always takes at least one message.
pub const MAX_BATCH_BYTES: usize = 3 * 1024 * 1024;

/// Maximum number of messages in one page of a [`List`](crate::Op::List) or
/// [`Check`](crate::Op::Check).
pub const MAX_PAGE: usize = 100;

/// Maximum number of delays in one [`Forecast`](crate::Op::Forecast).
pub const MAX_FORECAST: usize = 100;

/// Maximum number of messages in one [`Get`](crate::Op::Get), which returns their contents.
pub const MAX_LOOK_UP: usize = 16;

/// Largest result of an ack, in bytes.
pub const MAX_RESULT_BYTES: usize = 64 * 1024;

/// Longest time that a result is kept, in milliseconds: seven days.
pub const MAX_RESULT_RETENTION_MS: u64 = 7 * 86_400_000;

/// Maximum number of bytes of results in one queue. Beyond that, messages are acked, but their
/// results are not kept.
pub const MAX_RESULTS_BYTES: usize = 64 * 1024 * 1024;

/// Maximum number of results in one queue, so that small ones take limited memory, too. Beyond
/// that, messages are acked, but their results are not kept.
pub const MAX_RESULTS: usize = 1_000_000;

/// Maximum number of expired results that one operation removes to make room for new ones.
pub const MAX_EXPIRED_RESULTS: usize = 2 * MAX_BATCH;

/// Maximum number of expired leases that one claim reclaims, in addition to the messages that it
/// leases. Half of [`MAX_BATCH`], so that no script takes much longer than one that leases a full
/// batch. A claim on Redis also stops before it has read more than [`MAX_BATCH_BYTES`] of damaged
/// messages.
pub const MAX_RECLAIM: usize = 500;

/// Maximum number of expired or unreadable messages that one claim moves to the dead letters, in
/// addition to the messages that it leases. So a claim for one message gets past many expired ones.
pub const MAX_BURIALS: usize = 500;

/// Maximum number of due messages with a group that one claim moves into their lanes, in addition
/// to the messages that it leases, and of empty lanes that it passes over. So a flood of a million
/// messages of one group hides other groups from at most a thousand claims.
pub const MAX_LOOK_AHEAD: usize = 1000;

/// The number of waiting groups whose oldest message counts towards the earliest due time of a
/// queue, beginning with those whose turn is next.
pub const MAX_OLDEST_LANES: usize = 16;

/// Longest key of a relay's destination, in bytes. Keys are at least one byte long.
pub const MAX_DESTINATION_KEY_BYTES: usize = 512;

/// Longest name of a consumer group of a stream, in bytes. Names are at least one byte long.
pub const MAX_GROUP_BYTES: usize = 128;

/// Maximum length at which a relay's destination may count as full.
pub const MAX_DESTINATION_LENGTH: u64 = 1_000_000_000;

/// Maximum limit of the messages of one queue that are leased at once.
pub const MAX_LEASED: u32 = 1_000_000;

/// Maximum count and burst of a queue's rate.
pub const MAX_RATE_COUNT: u32 = 1_000_000;

/// Shortest period of a queue's rate, in milliseconds: one second.
pub const MIN_RATE_PERIOD_MS: u64 = 1_000;

/// Longest period of a queue's rate, in milliseconds: one day.
pub const MAX_RATE_PERIOD_MS: u64 = 86_400_000;

/// Longest delay and longest time to live, in milliseconds: 100 years of 365.25 days.
pub const MAX_DELAY_MS: u64 = 3_155_760_000_000;

/// Latest instant, in milliseconds since the Unix epoch: the end of the year 9999.
pub const MAX_TIMESTAMP_MS: u64 = 253_402_300_799_999;

/// Shortest lease, in milliseconds.
pub const MIN_LEASE_MS: u64 = 1;

/// Longest lease, in milliseconds: one day.
pub const MAX_LEASE_MS: u64 = 86_400_000;

/// Largest value of `max_failures` and `max_crashes`. The smallest is 1.
pub const MAX_ATTEMPT_LIMIT: u32 = 65_535;

/// Minimum time that an acked, cancelled, purged, relayed or replaced message is remembered, in
/// milliseconds, unless [`MAX_FINISHED`] more messages finish within that time: one hour. Until
/// then, its id is taken (G15) and a repeated ack is recognized (G8). It is forgotten within
/// three times that time.
pub const FINISHED_RETENTION_MS: u64 = 3_600_000;

/// Maximum number of finished messages in one generation; there are two generations.
pub const MAX_FINISHED: usize = 100_000;

/// Minimum time for which a consumer's last claim can be repeated, in milliseconds, unless
/// [`MAX_JOURNAL`] other consumers claim within that time: ten minutes (G16).
pub const JOURNAL_RETENTION_MS: u64 = 600_000;

/// Maximum number of consumers in one generation of the claim journal; there are two generations.
pub const MAX_JOURNAL: usize = 1000;

/// Maximum number of replicas that an operation can request confirmation from. No server has more
/// candidates for a failover.
pub const MAX_REPLICAS: u32 = 32;

/// The number of minutes in a [`History`](crate::Op::History) of minutes: six hours.
pub const HISTORY_MINUTES: u64 = 360;

/// The number of hours in a [`History`](crate::Op::History) of hours: 31 days. A queue in which
/// nothing changes for that long forgets its history.
pub const HISTORY_HOURS: u64 = 744;

/// The poll interval of a worker of one queue, in milliseconds, independent of hints (G21). A
/// worker of several queues polls each queue every 2.5 s times their number, between 5 s and 50 s.
pub const WORKER_POLL_MS: u64 = 5_000;

/// Maximum interval between two polls of a sleeper, in milliseconds. A backend need not send hints
/// for messages that are due later.
pub const SAFETY_POLL_MS: u64 = 60_000;
