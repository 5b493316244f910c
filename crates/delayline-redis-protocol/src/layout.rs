//! Where each byte of a queue stands: every structure in Redis, and every packed argument, field by
//! field.
//!
//! Nothing else knows it. From here come the offsets that this crate reads and writes with, the
//! constants of the scripts, the tables of `docs/wire.md`, and the shape that the fuzzers give to
//! their bytes.

pub mod codes;
mod constants;
mod field;

use delayline_core::limits::{MAX_ATTEMPT_ERROR_BYTES, MAX_UPDATE_TOKENS};
use delayline_core::{Position, Totals, UpdateToken};

use self::codes::CODES;
pub(crate) use self::constants::constants;
pub use self::field::{Field, Kind, Structure};
use self::field::{fields, structure};

/// The schema version that this library reads and writes.
pub const SCHEMA_VERSION: u64 = 2;

/// The first byte of `control`, in the place of a schema version, while the queue is converted.
pub(crate) const CONVERTING: u64 = 255;

const _: () = assert!(SCHEMA_VERSION < CONVERTING);

/// The bytes of a server's `run_id`.
pub(crate) const RUN_ID_BYTES: usize = 40;

/// Contents of more bytes stand in a hash of their own, so that scripts that need none do not read
/// them.
pub(crate) const SMALL: usize = 4096;

/// The bytes of the tokens that are remembered of an id.
const TOKENS_BYTES: usize = MAX_UPDATE_TOKENS * UpdateToken::BYTES;

/// Stands for the length of an attempt's error that is the error of the next attempt with one, or
/// else the last error. So attempts that fail alike are short.
pub(crate) const SAME_ERROR: u8 = 255;

const _: () = assert!(MAX_ATTEMPT_ERROR_BYTES < SAME_ERROR as usize);

/// The bits of a record's form that are its priority level.
pub(crate) const LEVEL_OF_FORM: u8 = 3;

/// The bits of a score in `index` that are the instant. The band is in front of them.
const BAND_SHIFT: u32 = 48;

/// The band and the instant, in ms, of a score in `index`.
#[must_use]
pub const fn place_of_score(score: u64) -> (u64, u64) {
    (score >> BAND_SHIFT, score & ((1 << BAND_SHIFT) - 1))
}

/// How many bytes of a member of `index` precede the id: the sequence number and, of a message with
/// a group, the number of its lane.
#[must_use]
pub fn bytes_before_id(member: &[u8]) -> usize {
    let is_grouped =
        member.first().is_some_and(|byte| u64::from(*byte) == Position::OF_GROUPS >> 56);
    member::BYTES + if is_grouped { member::LANE.kind.bytes() } else { 0 }
}

structure! {
    /// The control record: the state of the queue as a whole.
    control in "`control`" {
        VERSION: U8, "schema version";
        REVISION: U64, "number of operations that changed something";
        SEQUENCE: U64, "sequence number of the latest message";
        ACKED: U64, "number of acked messages";
        CANCELLED: U64, "number of cancelled messages";
        PURGED: U64, "number of purged messages";
        RELAYED: U64, "number of messages moved to a list or stream";
        EXPIRED: U64, "number of messages that became dead letters because they expired";
        REPLACED: U64, "number of messages that an update replaced";
        PAUSED: U8, "1 while the queue is paused";
        USES: U32, "features that the queue has ever used, a bit each; a script refuses a queue with a bit that it does not know";
        FINISHED_SINCE: Instant, "when the younger generation of `finished` began";
        JOURNAL_SINCE: Instant, "when the younger generation of `journal` began";
        ARMED: Instant, "instant at which sleeping processes claim again";
        ARMED_UNTIL: Instant, "latest instant at which sleeping processes wake up without a hint";
        MINUTE: U32, "minutes from 1970 to that of the latest snapshot in `history`";
        NEEDS: Spare(2), "major and minor version that knows all bits of `uses`; 0 for those below";
    }
    groups {
        COUNTS: SEQUENCE to REPLACED;
    }
}

structure! {
    /// The limits of a queue: they stand behind the control record, in the same value, if there are
    /// any.
    queue_limits in "`control`, behind the control record" {
        LEASED: U32, "the most messages that are leased at once; 0 for any number";
        EACH_GROUP: U32, "the most messages of one group that are leased at once; 0 for any number";
        IN_ORDER: U8, "1 if the messages of a group are handled one after the other";
        COUNT: U32, "the most that are delivered in each period; 0 for any number";
        PER: U32, "the period, in ms";
        BURST: U32, "the most that are delivered at once";
        HELD_UNTIL: Instant, "when deliveries continue";
        PAID_AT: Instant, "the theoretical arrival time of the generic cell rate algorithm";
        PAID_NS: U32, "the nanoseconds behind its milliseconds";
    }
    groups {}
}

structure! {
    /// Replaces the control record while the queue is converted to the next layout. Versions of
    /// all layouts know its first three bytes, and refuse the queue until the mark is removed. If
    /// only these three bytes are left, the conversion starts again, and the control record is
    /// lost.
    conversion in "`control`, while the queue is converted" {
        MARK: U8, "255, which is no schema version";
        OLD: U8, "schema version before the conversion";
        NEW: U8, "schema version after the conversion";
        PHASE: U8, "number of the hash that is being converted, from 1";
        CURSOR: U64, "cursor for the next `HSCAN`";
        SERVER: Bytes(super::RUN_ID_BYTES), "`run_id` of the server that returned the cursor";
        SEEN: U64, "number of entries that were read";
        CONTROL: Rest, "the control record of the old layout";
    }
    groups {
        HEAD: MARK to NEW;
    }
}

structure! {
    /// Counters that `control` does not have: integers of 8 bytes, each zero until its first
    /// event. Counters missing at the end are zero.
    totals in "`totals`" {
        LATENESS: Bytes(8 * super::Totals::LATENESS_BUCKETS), "deliveries that were late by 0-1, 2-3, 4-7 ms and so on: 16 counters, the last for 32,768 ms or more";
        FAILED: U64, "leases that ended in a failure";
        SNOOZED: U64, "leases that ended in a snooze";
        RELEASED: U64, "leases that were released";
        CRASHED: U64, "leases that expired";
        REDRIVEN: U64, "dead letters that were redriven";
        DIED_MAX_FAILURES: U64, "messages that became dead letters after too many failures";
        DIED_MAX_CRASHES: U64, "after too many expired leases";
        DIED_REJECTED: U64, "because a handler rejected them";
        DIED_UNREADABLE: U64, "because they could not be read";
        DIED_UNDECODABLE: U64, "because no worker could decode them";
    }
    groups {}
}

structure! {
    /// A snapshot of the queue's counts. `history` has a point for each minute in which the queue
    /// changed, in the field `m` and the number of the minute modulo 360, and for each hour in `h`
    /// and the number of the hour modulo 744. So a new point replaces one that is too old.
    point in "a value of `history`" {
        AT: Instant, "start of the minute or hour";
        SCHEDULED: U64, "messages that were not due";
        READY: U64, "messages that were due";
        LEASED: U64, "messages that were leased";
        DEAD: U64, "dead letters";
        SEQUENCE: U64, "the control record's";
        ACKED: U64, "the control record's";
        CANCELLED: U64, "the control record's";
        PURGED: U64, "the control record's";
        RELAYED: U64, "the control record's";
        EXPIRED: U64, "the control record's";
        REPLACED: U64, "the control record's";
        TOTALS: Rest, "`totals`";
    }
    groups {}
}

structure! {
    /// A member of `index`, which has one for each message. Its score is a band times 2^48 plus an
    /// instant: waiting messages have the band of their priority level, or that of groups, and
    /// their due instant, leased ones their deadline, dead ones the instant of their death.
    /// Messages that wait for the turn of their group have the number of its lane instead of an
    /// instant. Equal scores are ordered by member, so the leading sequence number keeps
    /// first-in-first-out order.
    member in "a member of `index`" {
        SEQUENCE: U64, "sequence number of the message, plus 2^56 if it has a group";
        LANE: Bytes(6) if "it has a group", "number of the group's lane";
        ID: Rest, "its id";
    }
    groups {}
}

structure! {
    /// A message as it was enqueued. The form says which of the fields behind it are present.
    record in "a value of `records`" {
        SEQUENCE: U64, "sequence number, from 1, plus 2^56 if it has a group";
        ENQUEUED_AT: Instant, "when it was enqueued";
        DIGEST: U64, "XXH3 of group, priority, limits, payload, and headers other than `traceparent`, `tracestate` and `delayline-waits-since`; 0 for a lost record";
        FORM: U8, "the priority level, and a bit for each optional part";
        DUE: Instant if "GROUPED", "when it is due; details have a later one";
        LANE: Bytes(6) if "GROUPED", "number of the group's lane: 47 bits of the SHA-1 of its name";
        GROUP_LENGTH: U8 if "GROUPED", "length of the group's name; 0 for a lost record";
        GROUP: Rest if "GROUPED", "the group's name";
        MAX_FAILURES: U16 if "LIMITED", "failures after which it is dead";
        MAX_CRASHES: U16 if "LIMITED", "crashes after which it is dead";
        EXPIRES_AT: Instant if "EXPIRES", "when it expires";
        HEADERS_LENGTH: U16 if "HEADED", "length of the headers";
        PAYLOAD_LENGTH: U32 if "LARGE", "length of the payload, which is in `contents`";
        HEADERS: Rest if "HEADED", "the headers";
        PAYLOAD: Rest, "the payload";
    }
    groups {}
}

structure! {
    /// A large content, stored outside its record.
    content in "a value of `contents`" {
        HEADERS_LENGTH: U16, "length of the headers";
        HEADERS: Rest, "the headers";
        PAYLOAD: Rest, "the payload";
    }
    groups {}
}

structure! {
    /// A header. Headers follow each other.
    header in "one of the headers" {
        NAME_LENGTH: U8, "length of the name";
        NAME: Rest, "the name";
        VALUE_LENGTH: U16, "length of the value";
        VALUE: Rest, "the value";
    }
    groups {}
}

structure! {
    /// Details: the history of a message since it was enqueued.
    ///
    /// The spare bytes make them longer than 64 bytes. By default Redis keeps a hash of up to 512
    /// values of at most 64 bytes as [a
    /// list](https://redis.io/docs/latest/operate/oss_and_stack/management/optimization/memory-optimization/),
    /// which it searches from the beginning.
    details in "a value of `details`" {
        STATE: U8, "the state of the latest lease";
        SETTLED: U8, "how the latest lease was settled: 0 if it was not, or the outcome's kind, plus 16 times the status of the message that this one has replaced";
        REASON: U8, "why the message is dead; 0 if it is not";
        EPOCH: U64, "number of leases so far";
        CLAIM_ID: Bytes(16), "the latest claim";
        SEQUENCE: Bytes(8), "the record's";
        DIGEST: U64, "the record's";
        LEVEL: U8, "the priority level of the record's form; 7 if it has a group";
        MAX_FAILURES: U16, "the record's, or the default";
        MAX_CRASHES: U16, "the record's, or the default";
        DUE: Instant, "the latest due instant";
        FAILURES: U16, "failures so far";
        CRASHES: U16, "expired leases so far";
        FIRST_ERROR_LENGTH: U16, "length of the first error";
        LAST_ERROR_LENGTH: U16, "length of the latest error";
        ATTEMPTS: U8, "number of attempts";
        SAVED_LENGTH: U16, "length of what handlers have saved; 0 if they saved nothing";
        SPARE: Spare(1), "reserved for later versions; 0";
        LANE: Bytes(6) if "it has a group", "the record's";
        FIRST_ERROR: Rest, "the text of the first error";
        LAST_ERROR: Rest, "the text of the latest error";
        SAVED: Rest, "what handlers have saved";
        LATEST: Rest, "the latest attempts that did not succeed, oldest first";
    }
    groups {
        LEASE: EPOCH to CLAIM_ID;
        FIXED: DIGEST to MAX_CRASHES;
        COPIED: SEQUENCE to MAX_CRASHES;
    }
}

structure! {
    /// What handlers have saved with a message.
    saved in "a part of details" {
        EPOCH: U64, "the lease under which the latest save was made";
        SAVE: Rest, "that save, with the parts of earlier ones that it has left out";
    }
    groups {}
}

structure! {
    /// An attempt that did not succeed. Attempts follow each other.
    attempt in "one of the attempts" {
        AT: Instant, "when it ended";
        OUTCOME: U8, "the outcome's kind; 0 if the lease expired";
        ERROR_LENGTH: U8, "length of the error; 0 without one; 255: the error of the next attempt that has one, or the last error";
        ERROR: Rest, "the beginning of the error's text";
    }
    groups {}
}

// Else Redis would search a small hash of them.
const _: () = assert!(details::BYTES > 64);

structure! {
    /// A remembered finished message. The field with the empty id has the instant at which the
    /// generation began.
    finished in "a value of `finished_new` and `finished_old`" {
        STATUS: U8, "how it ended";
        DIGEST: U64, "the record's";
        EPOCH: U64 if "it was settled or updated", "the lease that it was settled with, or 0";
        CLAIM_ID: Bytes(16) if "it was settled or updated", "the claim of that lease, or 0";
        TOKENS: Bytes(super::TOKENS_BYTES) if "it was updated", "the tokens of its latest updates";
    }
    groups {
        LEASE: EPOCH to CLAIM_ID;
    }
}

structure! {
    /// The updates of a live message: their tokens and, while the message is leased, its follower.
    updates in "a value of `updates`" {
        TOKENS: Bytes(super::TOKENS_BYTES), "the tokens of the latest updates, padded with leading zeros, the latest last";
        FOLLOWS: Bytes(8) if "there is a follower", "sequence number of the leased message";
        DUE: Instant if "there is a follower", "when the follower is due";
        LEVEL: U8 if "there is a follower", "the priority level of the follower; 7 if it has a group";
        MAX_FAILURES: U16 if "there is a follower", "failures after which it is dead";
        MAX_CRASHES: U16 if "there is a follower", "crashes after which it is dead";
        ENQUEUED_AT: Instant if "there is a follower", "the follower's record, from this field";
        DIGEST: U64 if "there is a follower", "digest";
        FORM: U8 if "there is a follower", "form";
        REST: Rest if "there is a follower", "the fields of the record after the form";
    }
    groups {
        LIMITED: LEVEL to MAX_CRASHES;
    }
}

structure! {
    /// The result of an ack. The field with the empty name is the number of bytes of all results,
    /// in decimal digits.
    result in "a value of `results`" {
        UNTIL: Instant, "when it expires";
        EPOCH: U64, "the lease that was acked with it";
        CLAIM_ID: Bytes(16), "the claim of that lease";
        CONTENT: Rest, "the result";
    }
    groups {
        LEASE: EPOCH to CLAIM_ID;
    }
}

structure! {
    /// A consumer's last claim.
    journal in "a value of `journal_new` and `journal_old`" {
        CLAIM_ID: Bytes(16), "the claim";
        COUNT: U16, "number of messages that it leased";
        LENGTHS: Rest, "the length of each id, one byte each";
        IDS: Rest, "the ids";
    }
    groups {}
}

structure! {
    /// Fields of the record that details repeat, besides the sequence number, to detect a damaged
    /// one.
    fixed in "a part of details" {
        DIGEST: U64, "digest";
        LEVEL: U8, "level";
        MAX_FAILURES: U16, "failures after which it is dead";
        MAX_CRASHES: U16, "crashes after which it is dead";
    }
    groups {}
}

structure! {
    /// The prefix of the details of a message that was leased before.
    delivery in "an answer" {
        DEADLINE: Instant, "when the lease ends";
        DETAILS: Rest, "its details";
    }
    groups {}
}

structure! {
    /// A lease, as an argument.
    lease in "an argument" {
        EPOCH: U64, "number of the lease";
        CLAIM_ID: Bytes(16), "the claim";
    }
    groups {}
}

structure! {
    /// An instant, as an argument.
    schedule in "an argument" {
        KIND: U8, "0: since 1970, 1: from now";
        MS: Instant, "milliseconds";
    }
    groups {}
}

structure! {
    /// The schedule of messages, as an argument: one entry for consecutive messages that share it.
    run in "an argument" {
        COUNT: U16, "number of messages";
        FLAGS: U8, "1: they may reuse finished ids, 2: they expire, 4: they are updates, 8: they throttle their ids";
        LEVEL: U8, "their priority level; 7 if they have groups";
        DUE: Bytes(super::schedule::BYTES), "their due instant";
    }
    groups {}
}

structure! {
    /// A message that does not expire, as an argument: its record from the digest. A large content
    /// follows its lengths.
    new_message in "an argument" {
        DIGEST: U64, "digest";
        FORM: U8, "form";
        REST: Rest, "the fields of the record after the form";
    }
    groups {}
}

structure! {
    /// A message that expires, as an argument: its expiry instant, then the fields of a message
    /// that does not expire.
    expiring_message in "an argument" {
        EXPIRES: Bytes(super::schedule::BYTES), "its expiry instant";
        DIGEST: U64, "digest";
        FORM: U8, "form";
        REST: Rest, "the fields of the record after the form";
    }
    groups {}
}

structure! {
    /// The prefix of a message that is an update.
    update in "an argument" {
        TOKEN: Bytes(8), "its token";
        CONTENT: U8, "its effect on the content";
        DUE: U8, "its effect on the due instant";
        AT_MOST: Instant, "maximum ms from the enqueue to a due instant that is moved";
    }
    groups {}
}

structure! {
    /// The prefix of a message, and of an update, that throttles its id.
    window in "an argument" {
        LENGTH: Instant, "length of the window in ms";
    }
    groups {}
}

structure! {
    /// A save.
    save in "an argument, and with a message" {
        NUMBER: U64, "its number under the lease";
        PARTS: U8, "1: it has a progress, 2: it has a checkpoint";
        PROGRESS: U16, "thousandths of the work that are done";
        TEXT_LENGTH: U16, "length of the progress text";
        TEXT: Rest, "the progress text";
        CHECKPOINT: Rest, "the checkpoint";
    }
    groups {}
}

structure! {
    /// A lease to extend, as an argument. One without a save ends after the lease.
    extension in "an argument" {
        EPOCH: U64, "number of the lease";
        CLAIM_ID: Bytes(16), "the claim";
        SAVE: Rest, "the save";
    }
    groups {
        LEASE: EPOCH to CLAIM_ID;
    }
}

structure! {
    /// A settlement, as an argument. An ack ends after the lease.
    settlement in "an argument" {
        EPOCH: U64, "number of the lease";
        CLAIM_ID: Bytes(16), "the claim";
        KIND: U8, "the outcome's kind";
        DUE: Bytes(super::schedule::BYTES), "when it is due again";
        SAVE_LENGTH: U16, "length of the save; 0 without one";
        SAVE: Rest, "the save";
        ERROR: Rest, "the text of an error";
    }
    groups {
        LEASE: EPOCH to CLAIM_ID;
    }
}

structure! {
    /// A hold of the queue or of a group that a settlement sets, as an argument.
    hold in "an argument" {
        SETTLEMENT: U16, "number of the settlement, from 1; 0 is no hold: the caller claims next, and needs no hint";
        OF_GROUP: U8, "1 if it is of the group of the message";
        UNTIL: Bytes(super::schedule::BYTES), "when deliveries continue";
    }
    groups {}
}

structure! {
    /// The messages and the result of a settlement.
    hand_off in "an argument" {
        COUNT: U16, "number of messages";
        RETENTION: Instant, "ms for which the result is kept, or 0 if there is none";
    }
    groups {}
}

/// Every structure, in the order of this file.
pub const STRUCTURES: [&Structure; 30] = [
    &control::STRUCTURE,
    &queue_limits::STRUCTURE,
    &conversion::STRUCTURE,
    &totals::STRUCTURE,
    &point::STRUCTURE,
    &member::STRUCTURE,
    &record::STRUCTURE,
    &content::STRUCTURE,
    &header::STRUCTURE,
    &details::STRUCTURE,
    &saved::STRUCTURE,
    &attempt::STRUCTURE,
    &finished::STRUCTURE,
    &updates::STRUCTURE,
    &result::STRUCTURE,
    &journal::STRUCTURE,
    &fixed::STRUCTURE,
    &delivery::STRUCTURE,
    &lease::STRUCTURE,
    &schedule::STRUCTURE,
    &run::STRUCTURE,
    &new_message::STRUCTURE,
    &expiring_message::STRUCTURE,
    &update::STRUCTURE,
    &window::STRUCTURE,
    &save::STRUCTURE,
    &extension::STRUCTURE,
    &settlement::STRUCTURE,
    &hold::STRUCTURE,
    &hand_off::STRUCTURE,
];
