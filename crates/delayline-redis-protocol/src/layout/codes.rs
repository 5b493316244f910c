//! Numbers that stand for something else: what a byte of a structure means, and how scripts answer.

/// Numbers of one kind.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CodeList {
    /// What they tell.
    pub about: &'static str,
    /// What the names begin with in the scripts.
    pub(super) prefix: &'static str,
    /// All that there are.
    pub codes: &'static [Code],
}

/// A number and what it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Code {
    /// Its name, in capitals.
    pub name: &'static str,
    /// The number.
    pub value: i64,
}

macro_rules! codes {
    ($(
        $list:ident: $type:ty $(, $prefix:literal)? = $about:literal {
            $($name:ident = $value:literal),+ $(,)?
        }
    )+) => {
        $(
            #[doc = $about]
            pub mod $list {
                $(
                    #[doc = concat!("`", stringify!($value), "`")]
                    pub const $name: $type = $value;
                )+
            }
        )+

        /// Every list.
        pub const CODES: &[CodeList] = &[$(CodeList {
            about: $about,
            prefix: concat!("", $($prefix)?),
            codes: &[$(Code { name: stringify!($name), value: $value }),+],
        }),+];
    };
}

codes! {
    uses: u16, "USES_" = "bits of `uses`: messages of each priority level, large contents, updates, \
                         limits, groups, groups that were held" {
        URGENT = 1, HIGH = 2, NORMAL = 4, LOW = 8, CONTENTS = 16, UPDATES = 32, LIMITS = 64,
        GROUPS = 128, HOLDS = 256, ALL = 511,
    }
    form: u8 = "bits of a record's form, in addition to its level: unusual limits, an expiry instant, \
                headers, a content that stands apart, a group" {
        LIMITED = 4, EXPIRES = 8, HEADED = 16, LARGE = 32, GROUPED = 64,
    }
    lease_state: u8, "LEASE_" = "states of a lease: over, held, held by a worker that is asked to stop" {
        CLOSED = 0, OPEN = 1, CANCELLING = 2,
    }
    settlement_kind: u8 = "kinds of outcomes" {
        ACK = 0, RETRY = 1, SNOOZE = 2, RELEASE = 3, REJECT = 4, UNDECODED = 5,
    }
    status: u8 = "statuses" {
        SCHEDULED = 1, READY = 2, LEASED = 3, DEAD = 4, ACKED = 5, CANCELLED = 6, PURGED = 7,
        RELAYED = 8, REPLACED = 9,
    }
    reason: u8 = "reasons of a death" {
        MAX_FAILURES = 1, MAX_CRASHES = 2, REJECTED = 3, EXPIRED = 4, UNDECODABLE = 5,
        UNREADABLE = 6,
    }
    argument: u8 = "flags of messages to enqueue, and kinds of instants" {
        REUSES = 1, EXPIRING = 2, UPDATING = 4, THROTTLED = 8, ABSOLUTE = 0, RELATIVE = 1,
    }
    part: u8, "PART_" = "parts of a save" { PROGRESS = 1, CHECKPOINT = 2 }
    update: u8, "UPDATE_" = "what an update does to content and due instant: it stays, is replaced, is \
                              set, gets later" {
        KEEP = 0, REPLACE = 1, SET = 2, LATER = 3,
    }
    answer: i64, "ANSWER_" = "what a reply begins with" {
        RESULTS = 0, OTHER_VERSION = 1, DAMAGED = 2, NO_LAG = 3, NEWER_FEATURE = 4,
    }
    destination: u8, "TO_" = "destinations of a relay" { LIST = 0, STREAM = 1 }
    enqueued: i64, "ENQUEUE_" = "messages that were known: CONFLICT minus a status, or minus a status; \
                                 updates: that follow, for the first time or again, or UPDATED plus \
                                 the due instant; throttled ids: THROTTLED plus when that ends" {
        CONFLICT = -10, FOLLOWING = -20, FOLLOWING_AGAIN = -21, TOO_MANY_THROTTLED = -22,
        UPDATED = 1_125_899_906_842_624, THROTTLED = 2_251_799_813_685_248,
    }
    settled: i64, "SETTLE_" = "settlements that did nothing; the last minus a status" {
        ALREADY_DONE = -1, STALE = -2, MISSING = -3, ALREADY_ENDED = -10,
    }
    extended: i64, "EXTEND_" = "extensions" { DONE = 1, CANCELLING = 2, STALE = -2, MISSING = -3 }
    cancelled: i64, "CANCEL_" = "cancellations" { DONE = 1, IN_FLIGHT = 2, NOT_FOUND = 3 }
    rescheduled: i64, "RESCHEDULE_" = "refused changes of a due instant" {
        IN_FLIGHT = -1, DEAD = -2, NOT_FOUND = -3,
    }
    redriven: i64, "REDRIVE_" = "refused revivals" {
        NOT_DEAD = -1, UNREADABLE = -2, NOT_FOUND = -3,
    }
    purged: i64, "PURGE_" = "purges" { DONE = 1, NOT_DEAD = 2, NOT_FOUND = 3 }
    item: i64, "GET_" = "messages that are not live" { UNREADABLE = -1, UNKNOWN = 0 }
    progress: i64, "PROGRESS_" = "messages that are not finished; dead ones: minus the reason" {
        PENDING = 0, UNKNOWN = -10,
    }
    resolution: u8, "RESOLUTION_" = "resolutions of a history" { MINUTES = 0, HOURS = 1 }
    place: u8, "AT_" = "bands of `index`, after the priority levels, and where else an audit looks" {
        LEASED = 4, DEAD = 5, LANES = 6, GROUPED = 7, RECORDS = 8, DETAILS = 9, CONTENTS = 10,
        UPDATES = 11, SLOTS = 12,
    }
    finding: i64, "FOUND_" = "what an audit finds" {
        MALFORMED_ENTRY = 1, MISSING_RECORD = 2, WRONG_RECORD = 3, MISSING_DETAILS = 4,
        RECORD_COUNT = 5, CONSERVATION = 6, ORPHAN = 7, MISSING_TURN = 8,
    }
}
