//! The constants of the scripts, which have names in capitals. Each number is defined once for Lua
//! and Rust.

use delayline_core::limits::{
    FINISHED_RETENTION_MS, HISTORY_HOURS, HISTORY_MINUTES, JOURNAL_RETENTION_MS,
    MAX_ATTEMPT_ERROR_BYTES, MAX_ATTEMPTS, MAX_BATCH, MAX_BATCH_BYTES, MAX_BURIALS,
    MAX_CHECKPOINT_BYTES, MAX_EXPIRED_RESULTS, MAX_FINISHED, MAX_HEADERS_BYTES, MAX_ID_BYTES,
    MAX_JOURNAL, MAX_LOOK_AHEAD, MAX_MESSAGE_GROUP_BYTES, MAX_OLDEST_LANES,
    MAX_PROGRESS_TEXT_BYTES, MAX_RECLAIM, MAX_RESULT_RETENTION_MS, MAX_RESULTS, MAX_RESULTS_BYTES,
    MAX_THROTTLE_MS, MAX_THROTTLED_IDS, MAX_TIMESTAMP_MS, SAFETY_POLL_MS,
};
use delayline_core::{Element, NewMessage, Position, Priority, Resolution, Totals, UpdateToken};

use super::codes::{lease_state, place, status};
use super::{
    BAND_SHIFT, CODES, CONVERTING, Field, Kind, RUN_ID_BYTES, SAME_ERROR, SCHEMA_VERSION, SMALL,
    STRUCTURES, Structure, TOKENS_BYTES, attempt, control, conversion, details, finished, member,
    point, queue_limits, record, run, save, schedule, totals, update, updates,
};

/// Every constant of the scripts, with what stands in its place.
///
/// A field of one byte is its position, counted from 1. A longer field is its first and its last
/// position, as `sub` takes them, and `NAME_FROM` is the first alone.
pub(crate) fn constants() -> Vec<(String, String)> {
    let mut all = numbers();
    all.extend(texts());
    for structure in STRUCTURES {
        all.extend(positions(structure));
    }
    all.extend(counters());
    for list in CODES {
        let named = |name| format!("{}{name}", list.prefix);
        all.extend(list.codes.iter().map(|code| (named(code.name), code.value.to_string())));
    }
    all
}

/// The number of each counter in `totals`, as `BITFIELD` takes it.
fn counters() -> impl Iterator<Item = (String, String)> {
    let number = |field: &Field| field.offset.map(|offset| offset / Kind::U64.bytes());
    let fields = totals::STRUCTURE.fields.iter();
    fields.filter_map(move |field| {
        Some((format!("TOTAL_{}", field.name), number(field)?.to_string()))
    })
}

/// The limits of the contract, and what follows from the widths of fields.
fn numbers() -> Vec<(String, String)> {
    let of_group = width(&[record::DUE, record::LANE, record::GROUP_LENGTH]);
    let all: [(&str, u64); _] = [
        ("SCHEMA_VERSION", SCHEMA_VERSION),
        ("CONVERTING", CONVERTING),
        ("CONVERSION_HEAD_BYTES", width(&[conversion::MARK, conversion::OLD, conversion::NEW])),
        ("RUN_ID_BYTES", RUN_ID_BYTES as u64),
        ("MAX_TIMESTAMP", MAX_TIMESTAMP_MS),
        // The first byte of MAX_TIMESTAMP: only an instant that begins so can be later.
        ("LATE", MAX_TIMESTAMP_MS >> 40),
        // Later than any instant.
        ("NEVER", (1 << 48) - 1),
        // A score in `index` is a band times this, plus an instant.
        ("BAND", BAND),
        ("BANDS", u64::from(place::GROUPED) + 1),
        ("LAST_BAND", place::GROUPED.into()),
        ("NORMAL_LEVEL", Priority::Normal.level().into()),
        ("LAST_LEVEL", Priority::Low.level().into()),
        // The first byte of the sequence number of a message with a group.
        ("OF_GROUP", Position::OF_GROUPS >> 56),
        ("MEMBER_ID_FROM", width(&[member::SEQUENCE]) + 1),
        ("GROUPED_ID_FROM", width(&[member::SEQUENCE, member::LANE]) + 1),
        ("LANE_BYTES", width(&[details::LANE])),
        // What stands behind the form of a record with a group, in front of the group's name.
        ("GROUP_BYTES", of_group),
        ("LOOK_AHEAD", MAX_LOOK_AHEAD as u64),
        // The most members of a sorted set that Redis, by default, keeps in one listpack.
        ("SHORT_RING", 128),
        ("OLDEST_LANES", MAX_OLDEST_LANES as u64),
        // Lua's numbers are not exact beyond it.
        ("MAX_EXACT", 1 << 53),
        // A sequence number and a cursor go in two halves, each below this.
        ("HALF", 1 << 32),
        ("MAX_ID_BYTES", MAX_ID_BYTES as u64),
        ("MAX_BATCH", MAX_BATCH as u64),
        ("MAX_BATCH_BYTES", MAX_BATCH_BYTES as u64),
        ("MAX_HEADERS_BYTES", MAX_HEADERS_BYTES as u64),
        ("MAX_RECLAIM", MAX_RECLAIM as u64),
        ("MAX_BURIALS", MAX_BURIALS as u64),
        ("SAME_ERROR", SAME_ERROR.into()),
        ("MAX_ATTEMPTS", MAX_ATTEMPTS as u64),
        ("MAX_ATTEMPT_ERROR_BYTES", MAX_ATTEMPT_ERROR_BYTES as u64),
        ("FINISHED_RETENTION", FINISHED_RETENTION_MS),
        ("MAX_FINISHED", MAX_FINISHED as u64),
        ("RESULT_RETENTION", MAX_RESULT_RETENTION_MS),
        ("MAX_RESULTS", MAX_RESULTS as u64),
        ("MAX_RESULTS_BYTES", MAX_RESULTS_BYTES as u64),
        ("MAX_EXPIRED_RESULTS", MAX_EXPIRED_RESULTS as u64),
        ("MAX_THROTTLE", MAX_THROTTLE_MS),
        ("MAX_THROTTLED_IDS", MAX_THROTTLED_IDS as u64),
        ("JOURNAL_RETENTION", JOURNAL_RETENTION_MS),
        ("MAX_JOURNAL", MAX_JOURNAL as u64),
        // Every sleeper comes back within this time.
        ("SAFETY_POLL", SAFETY_POLL_MS),
        // An idle worker notes when it comes back only if that differs from what is noted by more.
        ("STEADY", 10_000),
        ("LAST_LATENESS", Totals::LATENESS_BUCKETS as u64 - 1),
        ("MINUTE", Resolution::Minutes.unit_ms()),
        ("HOUR", Resolution::Hours.unit_ms()),
        ("HISTORY_MINUTES", HISTORY_MINUTES),
        ("HISTORY_HOURS", HISTORY_HOURS),
        // A history without new points expires when its last point is too old.
        ("HISTORY_RETENTION", HISTORY_HOURS * Resolution::Hours.unit_ms()),
        ("SMALL", SMALL as u64),
        ("TOKEN_BYTES", UpdateToken::BYTES as u64),
        ("TOKENS_BYTES", TOKENS_BYTES as u64),
        // What stands in `updates` is at least as long if there is a follower.
        ("FOLLOWED_BYTES", followed()),
        // The longest save.
        ("MOST_SAVE", (save::BYTES + MAX_PROGRESS_TEXT_BYTES + MAX_CHECKPOINT_BYTES) as u64),
        // How the lease before a message ended: a kind, and this times a status if that was the
        // end.
        ("ENDED", 16),
        // Most ids that one call of an audit looks up in `updates`, whose values may be long.
        ("MOST_UPDATES", 100),
        // Of a queue that has limits, and where these begin.
        ("LIMITED_CONTROL_BYTES", (control::BYTES + queue_limits::BYTES) as u64),
        ("QUEUE_LIMITS_OFFSET", control::BYTES as u64 + 1),
        ("NS_PER_MS", 1_000_000),
        ("NS_PER_US", 1_000),
        ("U16_BYTES", Kind::U16.bytes() as u64),
        ("INSTANT_BYTES", Kind::Instant.bytes() as u64),
        // The optional parts of a record: the lengths of a large content, and unusual limits.
        ("LENGTHS_BYTES", width(&[record::HEADERS_LENGTH, record::PAYLOAD_LENGTH])),
        ("LIMITS_BYTES", width(&[record::MAX_FAILURES, record::MAX_CRASHES])),
        // The most bytes that a record has in front of headers and payload.
        ("RECORD_HEAD_BYTES", record_head()),
        ("GROUPED_HEAD_BYTES", record_head() + of_group + MAX_MESSAGE_GROUP_BYTES as u64),
        // Most ids of details or contents that one call of an audit looks up among the records.
        ("MOST_ORPHANS", 500),
        // Of a message that could not be read and has no record any more.
        ("STRAY_LEVEL", Priority::Normal.level().into()),
    ];
    all.into_iter().map(|(name, value)| (name.to_owned(), value.to_string())).collect()
}

const BAND: u64 = 1 << BAND_SHIFT;

/// How `struct` reads integers and whole structures, and texts of bytes.
fn texts() -> Vec<(String, String)> {
    let (failures, crashes) = (NewMessage::DEFAULT_MAX_FAILURES, NewMessage::DEFAULT_MAX_CRASHES);
    let details = "STATE SETTLED REASON LEASE SEQUENCE FIXED DUE FAILURES CRASHES \
                   FIRST_ERROR_LENGTH LAST_ERROR_LENGTH ATTEMPTS SAVED_LENGTH SPARE";
    let first_score = |band: u8| format!("'{}'", u64::from(band) * BAND);
    let last_score = |band: u8| format!("'{}'", u64::from(band) * BAND + MAX_TIMESTAMP_MS);
    let history = [
        details::FAILURES,
        details::CRASHES,
        details::FIRST_ERROR_LENGTH,
        details::LAST_ERROR_LENGTH,
        details::ATTEMPTS,
        details::SAVED_LENGTH,
        details::SPARE,
    ];
    let error_lengths = [details::FIRST_ERROR_LENGTH, details::LAST_ERROR_LENGTH];
    let level_and_limits = [details::LEVEL, details::MAX_FAILURES, details::MAX_CRASHES];
    let no_limits: Vec<_> =
        queue_limits::STRUCTURE.fields.iter().map(|field| (0, *field)).collect();
    let all = [
        ("U16", format_of(&[Kind::U16])),
        ("U32", format_of(&[Kind::U32])),
        ("U64", format_of(&[Kind::U64])),
        ("INSTANT", format_of(&[Kind::Instant])),
        ("HALVES", format_of(&[Kind::U32; 2])),
        ("LENGTHS", format_of(&[record::HEADERS_LENGTH.kind, record::PAYLOAD_LENGTH.kind])),
        ("SCHEDULE_FORMAT", format_of(&kinds(schedule::STRUCTURE.fields))),
        ("RUN_FORMAT", format_of(&[run::COUNT.kind, run::FLAGS.kind, run::LEVEL.kind])),
        (
            "UPDATE_FORMAT",
            format_of(&[update::CONTENT.kind, update::DUE.kind, update::AT_MOST.kind]),
        ),
        ("NO_TOKENS", bytes_of(&[(0, updates::TOKENS)])),
        // All but the last byte of a sequence number.
        ("HIGH_SEQUENCE", format!("1, {}", record::SEQUENCE.kind.bytes() - 1)),
        ("FIRST_LEASED", first_score(place::LEASED)),
        ("LAST_LEASED", last_score(place::LEASED)),
        ("LAST_WAITING", last_score(Priority::Low.level())),
        ("FIRST_IN_LANES", first_score(place::LANES)),
        ("LAST_IN_LANES", last_score(place::LANES)),
        ("FIRST_GROUPED", first_score(place::GROUPED)),
        ("LAST_GROUPED", last_score(place::GROUPED)),
        // The number in a member, behind the byte that tells whether the message has a group.
        ("NUMBER", format!("'>I{}'", member::SEQUENCE.kind.bytes() - 1)),
        ("OF_GROUP_BYTE", format!("'\\{}'", Position::OF_GROUPS >> 56)),
        ("CONTROL_FORMAT", format_of(&kinds(control::STRUCTURE.fields))),
        ("QUEUE_LIMITS_FORMAT", format_of(&kinds(queue_limits::STRUCTURE.fields))),
        ("NO_QUEUE_LIMITS", bytes_of(&no_limits)),
        // The score in `turns` of a lane that waits for a slot. That of one that is held is this
        // minus the end of the hold.
        ("NO_TURN", "'-1'".to_owned()),
        ("CONVERSION_FORMAT", format_of(&kinds(conversion::STRUCTURE.fields))),
        // What stands in front of the counts of the control record.
        (
            "POINT_FORMAT",
            format_of(
                &[point::AT, point::SCHEDULED, point::READY, point::LEASED, point::DEAD]
                    .map(|field| field.kind),
            ),
        ),
        (
            "NO_COUNTS",
            bytes_of(
                &[
                    control::SEQUENCE,
                    control::ACKED,
                    control::CANCELLED,
                    control::PURGED,
                    control::RELAYED,
                    control::EXPIRED,
                    control::REPLACED,
                ]
                .map(|field| (0, field)),
            ),
        ),
        ("DETAILS_FORMAT", format_of(&pieces(&details::STRUCTURE, details))),
        ("LEVEL_AND_LIMITS", format_of(&kinds(&level_and_limits))),
        ("ERROR_LENGTHS", format_of(&kinds(&error_lengths))),
        ("ATTEMPT_FORMAT", format_of(&kinds(attempt::STRUCTURE.fields))),
        // What most messages have, as it stands in details.
        (
            "DEFAULT_LIMITS",
            bytes_of(&[(failures, details::MAX_FAILURES), (crashes, details::MAX_CRASHES)]),
        ),
        ("STRAY_LIMITS", bytes_of(&[(1, details::MAX_FAILURES), (1, details::MAX_CRASHES)])),
        // Of a record that takes the place of a lost one.
        ("NO_DIGEST", bytes_of(&[(0, record::DIGEST)])),
        ("NO_LEASE", bytes_of(&[details::EPOCH, details::CLAIM_ID].map(|field| (0, field)))),
        ("NO_SEQUENCE", bytes_of(&[(0, record::SEQUENCE)])),
        // What the details of a first lease begin with and, behind the due instant, end with.
        (
            "FIRST_LEASE",
            bytes_of(&[
                (lease_state::OPEN.into(), details::STATE),
                (0, details::SETTLED),
                (0, details::REASON),
                (1, details::EPOCH),
            ]),
        ),
        (
            "NEXT_LEASE",
            bytes_of(&[
                (lease_state::OPEN.into(), details::STATE),
                (0, details::SETTLED),
                (0, details::REASON),
            ]),
        ),
        ("NO_HISTORY", bytes_of(&history.map(|field| (0, field)))),
        ("ACKED_BYTE", bytes_of(&[(status::ACKED.into(), finished::STATUS)])),
        ("CANCELLED_BYTE", bytes_of(&[(status::CANCELLED.into(), finished::STATUS)])),
        ("RELAYED_BYTE", bytes_of(&[(status::RELAYED.into(), finished::STATUS)])),
        ("ELEMENT_ID", format!("'{}'", Element::ID)),
        ("ELEMENT_DUE", format!("'{}'", Element::DUE)),
        ("ELEMENT_PAYLOAD", format!("'{}'", Element::PAYLOAD)),
        ("ELEMENT_HEADER", format!("'{}'", Element::HEADER)),
    ];
    all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The bytes of all these fields.
fn width(fields: &[Field]) -> u64 {
    fields.iter().map(|field| field.kind.bytes() as u64).sum()
}

fn followed() -> u64 {
    let is_fixed = |field: &&Field| field.kind != Kind::Rest;
    let fixed: Vec<_> = updates::STRUCTURE.fields.iter().filter(is_fixed).copied().collect();
    width(&fixed)
}

/// Without the fields of a group.
fn record_head() -> u64 {
    let apart = [record::PAYLOAD_LENGTH, record::DUE, record::LANE, record::GROUP_LENGTH];
    let is_head = |field: &&Field| apart.iter().all(|it| it.name != field.name);
    let head: Vec<_> = record::STRUCTURE.fields.iter().filter(is_head).copied().collect();
    width(&head)
}

fn kinds(fields: &[Field]) -> Vec<Kind> {
    fields.iter().filter(|field| field.kind != Kind::Rest).map(|field| field.kind).collect()
}

/// The fields and groups of these names.
fn pieces(structure: &Structure, names: &str) -> Vec<Kind> {
    let piece = |name| {
        let group = structure.groups.iter().find(|(group, ..)| *group == name);
        let field = structure.fields.iter().find(|field| field.name == name);
        group
            .and_then(|(_, first, last)| Some(Kind::Bytes(end(last)? - first.offset?)))
            .or_else(|| field.map(|field| field.kind))
    };
    names.split(' ').filter_map(piece).collect()
}

/// The bytes behind which a field ends.
fn end(field: &Field) -> Option<usize> {
    field.offset.map(|offset| offset + field.kind.bytes())
}

/// Kinds as `struct` takes them.
fn format_of(kinds: &[Kind]) -> String {
    let piece = |kind: &Kind| match kind {
        Kind::Bytes(bytes) => format!("c{bytes}"),
        Kind::Spare(bytes) => "x".repeat(*bytes),
        kind => format!("I{}", kind.bytes()),
    };
    format!("'>{}'", kinds.iter().map(piece).collect::<String>())
}

/// A text that holds these numbers as the fields do.
fn bytes_of(values: &[(u32, Field)]) -> String {
    let padded = |(value, field): &(u32, Field)| {
        let (bytes, width) = (value.to_be_bytes(), field.kind.bytes());
        let zeros = width.saturating_sub(bytes.len());
        [&vec![0; zeros][..], &bytes[bytes.len() - (width - zeros)..]].concat()
    };
    let bytes = values.iter().flat_map(padded);
    format!("'{}'", bytes.map(|byte| format!("\\{byte}")).collect::<String>())
}

/// Where the fields and groups of a structure stand, and how long it is.
fn positions(structure: &Structure) -> Vec<(String, String)> {
    let of = structure.name.to_ascii_uppercase();
    let mut all = vec![(format!("{of}_BYTES"), structure.bytes().to_string())];
    let mut put = |name: &str, offset: usize, end: Option<usize>| {
        let first = offset + 1;
        all.push((format!("{of}_{name}_FROM"), first.to_string()));
        match end {
            None => {}
            Some(end) if end == first => all.push((format!("{of}_{name}"), first.to_string())),
            Some(end) => all.push((format!("{of}_{name}"), format!("{first}, {end}"))),
        }
    };
    for field in structure.fields {
        if let Some(offset) = field.offset {
            put(field.name, offset, end(field).filter(|_| field.kind != Kind::Rest));
        }
    }
    for (name, first, last) in structure.groups {
        if let Some(offset) = first.offset {
            put(name, offset, end(last));
        }
    }
    all
}
