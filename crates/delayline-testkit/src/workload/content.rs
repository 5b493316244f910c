//! The values used in random runs.

use bytes::Bytes;
use delayline_core::limits::{
    FINISHED_RETENTION_MS, JOURNAL_RETENTION_MS, MAX_CHECKPOINT_BYTES, MAX_PROGRESS_TEXT_BYTES,
    MAX_RESULT_BYTES, MAX_RESULT_RETENTION_MS, MAX_SAVE_NUMBER, MAX_THROTTLE_MS,
};
use delayline_core::{
    ClaimId, ConsumerName, FinishedIds, Group, Headers, Known, Lease, MessageId, Millis,
    NewMessage, NewResult, Outcome, Position, Priority, Progress, Save, Schedule, Timestamp,
    Update, UpdateContent, UpdateDue, UpdateToken,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

/// Where the clock of a random run starts: some present-day instant.
pub(crate) fn start() -> Timestamp {
    Timestamp::from_ms(1_800_000_000_000).unwrap_or_default()
}

/// A few ids, some of them awkward: bytes with a meaning in a Redis server, its protocol or a text
/// encoding.
const IDS: [&[u8]; 6] = [b"a", b"b", b"order-3", b"message", b"\0\xff\r\n", b"{x}:*1\xc3"];

/// The usual groups of these ids: few, and one of them is awkward.
const GROUPS: [Option<&str>; 6] =
    [None, Some("g"), Some("g"), Some("\u{e9}\r\n\0"), None, Some("h")];

const CONSUMERS: [&[u8]; 3] = [b"w1", b"w2", b"\0:\xff\n"];

/// Payloads that might be taken for something else.
const ODD_PAYLOADS: [&[u8]; 8] = [
    b"",
    b"\0",
    b"\r\n",
    b"$-1\r\n",
    b"-ERR no\r\n",
    b"\xff\xfe\x80",
    b"9007199254740993",
    b"1.7000000001235e+15",
];

pub(super) fn id() -> impl Strategy<Value = MessageId> + Clone {
    select(&IDS[..]).prop_filter_map("within the limits", |id| MessageId::new(id).ok())
}

/// One to six distinct ids, in any order.
pub(super) fn ids() -> impl Strategy<Value = Vec<MessageId>> {
    prop_oneof![
        2 => id().prop_map(|id| vec![id]),
        1 => subsequence(&IDS[..], 1..=IDS.len()).prop_shuffle().prop_map(|ids| {
            ids.into_iter().filter_map(|id| MessageId::new(id).ok()).collect()
        }),
    ]
}

/// A value for each of one to six distinct ids.
pub(super) fn for_ids<T: Clone + std::fmt::Debug>(
    each: impl Strategy<Value = T>,
) -> impl Strategy<Value = Vec<(MessageId, T)>> {
    (ids(), vec(each, IDS.len())).prop_map(|(ids, each)| ids.into_iter().zip(each).collect())
}

pub(super) fn consumer() -> impl Strategy<Value = ConsumerName> {
    select(&CONSUMERS[..]).prop_filter_map("within the limits", |name| ConsumerName::new(name).ok())
}

/// Few tokens, so that claims are repeated and leases look alike.
pub(super) fn claim_id() -> impl Strategy<Value = ClaimId> {
    select(&[b'a', b'b', 0, 255][..]).prop_map(|byte| ClaimId::from_bytes([byte; ClaimId::BYTES]))
}

pub(super) fn lease() -> impl Strategy<Value = Lease> {
    let epoch = prop_oneof![8 => 0..4_u64, 1 => Just((1 << 53) + 1), 1 => Just(u64::MAX)];
    (claim_id(), epoch).prop_map(|(claim_id, epoch)| Lease { claim_id, epoch })
}

/// A message to enqueue. An id usually has the same content, so that a repeated enqueue is more
/// often a duplicate than a conflict.
pub(super) fn message((id, content): (MessageId, Content)) -> NewMessage {
    let variant = id.as_bytes().len() + usize::from(id.as_bytes()[0]);
    let mut message = NewMessage::new(id, content.payload.unwrap_or_else(|| "usual".into()));
    message.headers = content.headers;
    message.priority =
        content.priority.unwrap_or_else(|| Priority::ALL[variant % Priority::ALL.len()]);
    let usual = IDS.iter().position(|id| *id == message.id.as_bytes());
    let name = content.group.unwrap_or_else(|| usual.and_then(|usual| GROUPS[usual]));
    message.group = name.and_then(|name| Group::new(name).ok());
    if message.group.is_some() {
        message.priority = Priority::Normal;
    }
    let limits: [(u32, u32); 4] = [(2, 1), (1, 2), (3, 2), (20, 5)];
    (message.max_failures, message.max_crashes) =
        content.limits.unwrap_or(limits[variant / 2 % limits.len()]);
    message.schedule = content.schedule;
    message.expires = content.expires;
    message.finished_ids = content.finished_ids;
    message.known = content.known;
    message.throttle = content.throttle;
    message
}

/// A message without its id.
#[derive(Clone, Debug)]
pub(super) struct Content {
    payload: Option<Bytes>,
    headers: Headers,
    group: Option<Option<&'static str>>,
    priority: Option<Priority>,
    limits: Option<(u32, u32)>,
    schedule: Schedule,
    expires: Option<Schedule>,
    finished_ids: FinishedIds,
    known: Known,
    throttle: Option<Millis>,
}

pub(super) fn content() -> impl Strategy<Value = Content> {
    let payload = prop_oneof![
        2 => select(&ODD_PAYLOADS[..]).prop_map(Bytes::from_static),
        1 => vec(any::<u8>(), 0..40).prop_map(Bytes::from),
        1 => (any::<u8>(), 0..10_000_usize).prop_map(|(byte, len)| vec![byte; len].into()),
    ];
    let own = |weight| proptest::option::weighted(weight, select(&Priority::ALL[..]));
    (
        proptest::option::weighted(0.12, payload),
        headers(),
        (proptest::option::weighted(0.06, select(&GROUPS[..])), own(0.06)),
        proptest::option::weighted(0.06, (1..4_u32, 1..4_u32)),
        schedule(),
        proptest::option::weighted(0.25, schedule()),
        select(&[FinishedIds::Refuse, FinishedIds::Refuse, FinishedIds::Reuse][..]),
        known(),
        proptest::option::weighted(0.15, window()),
    )
        .prop_map(
            |(
                payload,
                headers,
                (group, priority),
                limits,
                schedule,
                expires,
                finished_ids,
                known,
                throttle,
            )| {
                Content {
                    payload,
                    headers,
                    group,
                    priority,
                    limits,
                    schedule,
                    expires,
                    finished_ids,
                    known,
                    throttle,
                }
            },
        )
}

/// Updates with few tokens, so that some are repeated while they are remembered and some later.
fn known() -> impl Strategy<Value = Known> {
    let due = prop_oneof![
        2 => Just(UpdateDue::Keep),
        2 => Just(UpdateDue::Set),
        3 => delay().prop_map(|at_most| UpdateDue::Later { at_most }),
    ];
    let content =
        select(&[UpdateContent::Keep, UpdateContent::Replace, UpdateContent::Replace][..]);
    let token = (1..12_u8).prop_map(|byte| UpdateToken::from_bytes([byte; UpdateToken::BYTES]));
    let update = (content, due, token)
        .prop_map(|(content, due, token)| Known::Update(Update::new(content, due, token)));
    prop_oneof![3 => Just(Known::Refuse), 2 => update]
}

fn headers() -> impl Strategy<Value = Headers> {
    // Few are too long for a one-byte length, and even fewer too long for a record.
    let length = prop_oneof![20 => 0..6_usize, 2 => 250..300_usize, 1 => 4_000..4_200_usize];
    let value = length.prop_flat_map(|length| vec(any::<u8>(), length));
    let header = (select(&["trace", "\u{e9}\r\n\0"][..]), value);
    let some = vec(header, 1..=3).prop_map(|all| {
        let mut headers = Headers::new();
        for (name, value) in all {
            // A header that would exceed the limits is left out.
            let _ = headers.set(name, value);
        }
        headers
    });
    prop_oneof![15 => Just(Headers::new()), 1 => some]
}

/// Instants close to each other, so that they tie, and the extremes.
pub(super) fn schedule() -> impl Strategy<Value = Schedule> {
    let close = |ms| Schedule::At(start().after(Millis::saturating(ms)));
    prop_oneof![
        6 => Just(Schedule::NOW),
        6 => (1..8_u64).prop_map(|ms| Schedule::In(Millis::saturating(ms))),
        3 => (0..30_u64).prop_map(close),
        2 => delay().prop_map(Schedule::In),
        1 => select(&[Timestamp::MIN, Timestamp::MAX][..]).prop_map(Schedule::At),
    ]
}

pub(super) fn delay() -> impl Strategy<Value = Millis> {
    prop_oneof![
        6 => 0..6_u64,
        2 => 6..100_u64,
        1 => select(vec![3_600_000, 1 << 31, 1 << 32, Millis::MAX.as_ms()]),
    ]
    .prop_map(Millis::saturating)
}

/// Of a throttled id: short, so that some end.
fn window() -> impl Strategy<Value = Millis> {
    prop_oneof![6 => 1..8_u64, 2 => 8..200_u64, 1 => Just(MAX_THROTTLE_MS)]
        .prop_map(Millis::saturating)
}

pub(super) fn lease_duration() -> impl Strategy<Value = Millis> {
    prop_oneof![6 => 1..8_u64, 2 => 8..200_u64, 1 => Just(86_400_000)].prop_map(Millis::saturating)
}

pub(super) fn every_id() -> Vec<MessageId> {
    IDS.iter().filter_map(|id| MessageId::new(*id).ok()).collect()
}

pub(super) fn result() -> impl Strategy<Value = NewResult> {
    let bytes = prop_oneof![
        4 => select(vec![&b""[..], b"42", b"\0\r\n"]).prop_map(Bytes::from_static),
        1 => (1..=MAX_RESULT_BYTES).prop_map(|len| vec![b'r'; len].into()),
    ];
    let retention =
        prop_oneof![2 => 1..10_u64, 2 => 10..200_u64, 2 => Just(MAX_RESULT_RETENTION_MS)];
    (bytes, retention).prop_map(|(bytes, ms)| NewResult::new(bytes, Millis::saturating(ms)))
}

/// Numbers are often alike, or lower than the one before.
pub(super) fn save() -> impl Strategy<Value = Save> {
    let text = prop_oneof![
        3 => select(&["", "page 12 of 30", "\0\r\n\u{1f980}"][..]).prop_map(str::to_owned),
        1 => Just("\u{e9}".repeat(MAX_PROGRESS_TEXT_BYTES / 2)),
    ];
    let progress = (select(&[0_u16, 1, 255, 256, 1_000][..]), text)
        .prop_map(|(permille, text)| Progress::from_permille(permille, text));
    let checkpoint = prop_oneof![
        4 => select(vec![&b""[..], b"42", b"\0\r\n\xff"]).prop_map(Bytes::from_static),
        1 => (1..=MAX_CHECKPOINT_BYTES).prop_map(|len| vec![b's'; len].into()),
    ];
    let number = prop_oneof![6 => 0..5_u64, 1 => Just(MAX_SAVE_NUMBER)];
    (number, prop::option::of(progress), prop::option::of(checkpoint)).prop_map(
        |(number, progress, checkpoint)| {
            Save::new(number).progress(progress).checkpoint(checkpoint)
        },
    )
}

/// When a settled message is due again: rarely now, which a release is for.
fn again() -> impl Strategy<Value = Schedule> {
    prop_oneof![3 => delay().prop_map(Schedule::In), 2 => schedule()]
}

pub(super) fn outcome() -> impl Strategy<Value = Outcome> {
    let error = || {
        prop_oneof![
            4 => select(&["", "boom", "\0\r\n", "-ERR \u{1f980}"][..]).prop_map(str::to_owned),
            1 => (1..=512_usize, select(&["e", "\u{e9}"][..])).prop_map(|(len, text)| text.repeat(len)),
        ]
    };
    prop_oneof![
        3 => Just(Outcome::Ack),
        4 => (again(), error()).prop_map(|(schedule, error)| Outcome::Retry { schedule, error }),
        2 => (again(), error())
            .prop_map(|(schedule, error)| Outcome::Undecodable { schedule, error }),
        2 => again().prop_map(|schedule| Outcome::Snooze { schedule }),
        2 => Just(Outcome::Release),
        2 => error().prop_map(|error| Outcome::Reject { error }),
    ]
}

pub(super) fn position() -> impl Strategy<Value = Position> {
    let instant = prop_oneof![
        6 => (0..30_u64).prop_map(|ms| start().after(Millis::saturating(ms))),
        1 => select(&[Timestamp::MIN, Timestamp::MAX][..]),
    ];
    let sequence = prop_oneof![8 => 0..8_u64, 1 => Just((1 << 53) + 1), 1 => Just(u64::MAX)];
    let index = prop_oneof![8 => 0..=Position::DEAD, 1 => any::<u8>()];
    (index, instant, sequence).prop_map(|(index, instant, sequence)| Position {
        index,
        instant,
        sequence,
    })
}

/// Spans after which memory ends, and a little less and more.
pub(super) fn memory_span() -> impl Strategy<Value = u64> {
    let spans = [FINISHED_RETENTION_MS, JOURNAL_RETENTION_MS];
    (select(spans.to_vec()), 1..=2_u64, 0..3_u64)
        .prop_map(|(span, times, offset)| (span * times + offset).saturating_sub(1))
}
