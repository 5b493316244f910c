//! Where each byte of a queue stands: every structure in Redis, and every packed argument, field by
//! field.
//!
//! Nothing else knows it. From here come the offsets that this crate reads and writes with, the
//! constants of the scripts, the tables of `docs/wire.md`, and the shape that the fuzzers give to
//! their bytes.

pub mod codes;
mod constants;
mod field;

use delayline_core::limits::MAX_UPDATE_TOKENS;
use delayline_core::{Totals, UpdateToken};

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

/// The bits of a record's form that are its priority level.
pub(crate) const LEVEL_OF_FORM: u8 = 3;

/// The bits of a score in `index` that are the instant. The band is in front of them.
const BAND_SHIFT: u32 = 48;

/// The band and the instant, in ms, of a score in `index`.
#[must_use]
pub const fn place_of_score(score: u64) -> (u64, u64) {
    (score >> BAND_SHIFT, score & ((1 << BAND_SHIFT) - 1))
}

structure! {
    /// The control record: what is known of the queue as a whole.
    control in "`control`" {
        VERSION: U8, "schema version";
        REVISION: U64, "how many operations have changed something";
        SEQUENCE: U64, "sequence number of the latest message";
        ACKED: U64, "how many messages were acked";
        CANCELLED: U64, "how many were cancelled";
        PURGED: U64, "how many were purged";
        RELAYED: U64, "how many messages were moved to a list or stream";
        EXPIRED: U64, "how many messages became dead letters because they expired";
        REPLACED: U64, "how many messages gave way to an update";
        PAUSED: U8, "1 while the queue is paused";
        USES: U32, "what the queue has ever used, a bit each; a script refuses a queue with a bit that it does not know";
        FINISHED_SINCE: Instant, "when the younger generation of `finished` began";
        JOURNAL_SINCE: Instant, "when the younger generation of `journal` began";
        ARMED: Instant, "until when waiting processes sleep";
        ARMED_UNTIL: Instant, "when waiting processes wake up by themselves at the latest";
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
        COUNT: U32, "the most that are delivered in each period; 0 for any number";
        PER: U32, "the period, in ms";
        BURST: U32, "the most that are delivered at once";
        HELD_UNTIL: Instant, "until when nothing is delivered";
        PAID_AT: Instant, "the theoretical arrival time of the generic cell rate algorithm";
        PAID_NS: U32, "the nanoseconds behind its milliseconds";
    }
    groups {}
}

structure! {
    /// Stands in the place of the control record while the queue is converted to the next layout.
    /// Versions of all layouts know its first three bytes, and refuse the queue until it is gone.
    /// If there are no more than these, the conversion begins anew, and the control record is lost.
    conversion in "`control`, while the queue is converted" {
        MARK: U8, "255, which is no schema version";
        OLD: U8, "schema version from which it is converted";
        NEW: U8, "schema version to which it is converted";
        PHASE: U8, "which of its hashes is being converted, from 1 on";
        CURSOR: U64, "where `HSCAN` goes on";
        SERVER: Bytes(super::RUN_ID_BYTES), "`run_id` of the server whose cursor that is";
        SEEN: U64, "how many entries were looked at";
        CONTROL: Rest, "the control record of the old layout";
    }
    groups {
        HEAD: MARK to NEW;
    }
}

structure! {
    /// How often each thing has happened that `control` does not count: integers of 8 bytes, each
    /// at zero until it is counted for the first time. What is missing at the end is zero, too.
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
    /// What the queue was like at an instant. `history` has one for each minute in which it
    /// changed, in the field `m` and the number of the minute modulo 360, and for each hour in `h`
    /// and the number of the hour modulo 744: so a new one takes the place of one that is too old.
    point in "a value of `history`" {
        AT: Instant, "the beginning of the minute or hour";
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
    /// instant: waiting messages have the band of their priority level and their due instant,
    /// leased ones their deadline, dead ones the instant of their death. Equal scores are ordered
    /// by member, so the sequence number in front keeps first-in-first-out.
    member in "a member of `index`" {
        SEQUENCE: U64, "sequence number of the message";
        ID: Rest, "its id";
    }
    groups {}
}

structure! {
    /// A record: what was enqueued. What follows `form` is there as the form says, in this order.
    record in "a value of `records`" {
        SEQUENCE: U64, "sequence number, from 1 on";
        ENQUEUED_AT: Instant, "when it was enqueued";
        DIGEST: U64, "XXH3 of priority, limits, payload, and headers other than `traceparent` and `tracestate`; 0 in place of a lost record";
        FORM: U8, "the priority level, and a bit for each thing that is not as usual";
        MAX_FAILURES: U16 if "LIMITED", "failures after which it is dead";
        MAX_CRASHES: U16 if "LIMITED", "crashes after which it is dead";
        EXPIRES_AT: Instant if "EXPIRES", "when it expires";
        HEADERS_LENGTH: U16 if "HEADED", "length of the headers";
        PAYLOAD_LENGTH: U32 if "LARGE", "length of the payload, which is then in `contents`";
        HEADERS: Rest if "HEADED", "the headers";
        PAYLOAD: Rest, "the payload";
    }
    groups {}
}

structure! {
    /// A large content, apart from its record.
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
    /// Details: what has happened to a message since it was enqueued.
    ///
    /// The spare bytes make them longer than 64 bytes. By default Redis keeps a hash of up to 512
    /// values of at most 64 bytes as [a
    /// list](https://redis.io/docs/latest/operate/oss_and_stack/management/optimization/memory-optimization/),
    /// which it searches from the beginning.
    details in "a value of `details`" {
        STATE: U8, "the state of the latest lease";
        SETTLED: U8, "how the latest lease was settled: 0 not at all, or the outcome's kind, plus 16 times the status of the message that this one has replaced";
        REASON: U8, "why the message is dead; 0 if it is not";
        EPOCH: U64, "how many leases there were";
        CLAIM_ID: Bytes(16), "the latest claim";
        SEQUENCE: Bytes(8), "the record's";
        DIGEST: U64, "the record's";
        LEVEL: U8, "the priority level of the record's form";
        MAX_FAILURES: U16, "the record's, or the usual one";
        MAX_CRASHES: U16, "the record's, or the usual one";
        DUE: Instant, "the latest due instant";
        FAILURES: U16, "failures so far";
        CRASHES: U16, "expired leases so far";
        FIRST_ERROR_LENGTH: U16, "length of the first error";
        SPARE: Spare(6), "for later versions; 0";
        FIRST_ERROR: Rest, "the text of the first error";
        LAST_ERROR: Rest, "the text of the latest error";
    }
    groups {
        LEASE: EPOCH to CLAIM_ID;
        FIXED: DIGEST to MAX_CRASHES;
        COPIED: SEQUENCE to MAX_CRASHES;
    }
}

// Else Redis would search a small hash of them.
const _: () = assert!(details::BYTES > 64);

structure! {
    /// What is remembered of a finished message. The empty id has the instant when the generation
    /// began.
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
    /// What updates have left with the id of a live message: their tokens and, while the message is
    /// leased, its follower.
    updates in "a value of `updates`" {
        TOKENS: Bytes(super::TOKENS_BYTES), "the tokens of the latest updates, the latest last, behind zeros";
        FOLLOWS: Bytes(8) if "there is a follower", "sequence number of the leased message";
        DUE: Instant if "there is a follower", "when the follower is due";
        LEVEL: U8 if "there is a follower", "the priority level of the follower";
        MAX_FAILURES: U16 if "there is a follower", "failures after which it is dead";
        MAX_CRASHES: U16 if "there is a follower", "crashes after which it is dead";
        ENQUEUED_AT: Instant if "there is a follower", "its record, from this field on";
        DIGEST: U64 if "there is a follower", "digest";
        FORM: U8 if "there is a follower", "form";
        REST: Rest if "there is a follower", "what follows the form in the record";
    }
    groups {
        LIMITED: LEVEL to MAX_CRASHES;
    }
}

structure! {
    /// The result of an ack. The field with the empty name is the number of bytes of all results,
    /// in decimal digits.
    result in "a value of `results`" {
        UNTIL: Instant, "when it is over";
        EPOCH: U64, "the lease whose ack had it";
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
        COUNT: U16, "how many messages it has leased";
        LENGTHS: Rest, "the length of each id, a byte each";
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
    /// What stands in front of the details of a message that is not leased for the first time.
    delivery in "an answer" {
        DEADLINE: Instant, "when the lease ends";
        DETAILS: Rest, "its details";
    }
    groups {}
}

structure! {
    /// A lease, as an argument.
    lease in "an argument" {
        EPOCH: U64, "which of the message's leases";
        CLAIM_ID: Bytes(16), "the claim";
    }
    groups {}
}

structure! {
    /// An instant, as an argument.
    schedule in "an argument" {
        KIND: U8, "0: since 1970, 1: from now on";
        MS: Instant, "milliseconds";
    }
    groups {}
}

structure! {
    /// How messages are scheduled, as an argument: one entry for consecutive messages with the same
    /// schedule.
    run in "an argument" {
        COUNT: U16, "how many messages";
        FLAGS: U8, "1: they may reuse finished ids, 2: they expire, 4: they are updates, 8: they throttle their ids";
        LEVEL: U8, "their priority level";
        DUE: Bytes(super::schedule::BYTES), "their due instant";
    }
    groups {}
}

structure! {
    /// A message that does not expire, as an argument: its record from the digest on, and after the
    /// lengths of a large content the content.
    new_message in "an argument" {
        DIGEST: U64, "digest";
        FORM: U8, "form";
        REST: Rest, "what follows the form in the record";
    }
    groups {}
}

structure! {
    /// A message that expires, as an argument: the same behind the expiry instant, whose place in
    /// the record the form tells.
    expiring_message in "an argument" {
        EXPIRES: Bytes(super::schedule::BYTES), "its expiry instant";
        DIGEST: U64, "digest";
        FORM: U8, "form";
        REST: Rest, "what follows the form in the record";
    }
    groups {}
}

structure! {
    /// What stands in front of a message that is an update.
    update in "an argument" {
        TOKEN: Bytes(8), "its token";
        CONTENT: U8, "what it does to the content";
        DUE: U8, "what it does to the due instant";
        AT_MOST: Instant, "the most ms that a due instant is after the enqueue, if it gets later";
    }
    groups {}
}

structure! {
    /// What stands in front of a message, and of an update, whose id it throttles.
    window in "an argument" {
        LENGTH: Instant, "for how many ms";
    }
    groups {}
}

structure! {
    /// A settlement, as an argument. An ack ends after the lease.
    settlement in "an argument" {
        EPOCH: U64, "which of the message's leases";
        CLAIM_ID: Bytes(16), "the claim";
        KIND: U8, "the outcome's kind";
        DUE: Bytes(super::schedule::BYTES), "when it is due again";
        ERROR: Rest, "the text of an error";
    }
    groups {
        LEASE: EPOCH to CLAIM_ID;
    }
}

structure! {
    /// A hold of the queue that a settlement brings about, as an argument. Holds follow each other.
    hold in "an argument" {
        SETTLEMENT: U16, "which settlement, from 1 on";
        UNTIL: Bytes(super::schedule::BYTES), "until when nothing is delivered";
    }
    groups {}
}

structure! {
    /// What each settlement of a hand-off carries.
    hand_off in "an argument" {
        COUNT: U16, "how many messages";
        RETENTION: Instant, "how many ms its result is kept, or 0 if it has none";
    }
    groups {}
}

/// Every structure, in the order of this file.
pub const STRUCTURES: [&Structure; 26] = [
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
    &settlement::STRUCTURE,
    &hold::STRUCTURE,
    &hand_off::STRUCTURE,
];
