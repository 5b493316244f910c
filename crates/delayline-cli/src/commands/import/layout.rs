//! How other queues store their messages.
//!
//! Read in their sources: HDT3213/delayqueue 1.1.2, Redisson 3.21 to 3.52 (RedissonDelayedQueue),
//! rsmq_async 18.0.0, apalis-redis 1.0.0.

use bytes::Bytes;
use delayline::Timestamp;
use delayline_redis_protocol::KEY_PREFIX;

use crate::args::{OldQueue, Unit};
use crate::failure::Failure;

/// Where a queue has its messages, and how each of them is stored.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Keys whose members are messages that wait.
    pub(super) places: Vec<Place>,
    /// A sorted set of consumers, and the prefix of the keys of their sets.
    pub(super) consumers: Option<(String, String)>,
    pub(super) content: Content,
    pub(super) attempts: Attempts,
}

/// A key that has messages as its members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) key: String,
    pub(super) kind: Kind,
}

/// What stands there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A sorted set with due times as scores.
    SortedSet(Unit),
    /// A list of due entries, the oldest first.
    List,
    /// A list of due entries, the oldest last.
    ReversedList,
    /// A set of due entries.
    Set,
}

impl Kind {
    /// As the server calls it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::SortedSet(_) => "zset",
            Self::List | Self::ReversedList => "list",
            Self::Set => "set",
        }
    }
}

/// Where the payload of a member is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// The member is the payload.
    Member,
    /// The member has the payload behind a random number. It is also in a list.
    Redisson { list: String },
    /// The member is an id, and a field of this hash. Fields of the id with these endings belong to
    /// it.
    Field { hash: String, companions: &'static [&'static str] },
    /// The member is an id. Its payload is in a string under this prefix.
    String { prefix: String },
}

impl Content {
    /// Whether members are ids, and not payloads.
    pub(super) const fn has_ids(&self) -> bool {
        matches!(self, Self::Field { .. } | Self::String { .. })
    }
}

/// How often a message may still fail.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Attempts {
    /// As often as any new message.
    Default,
    /// This hash has the number of retries left. An entry that waits is delivered once more than
    /// that, one of the sorted set `held` has had this delivery.
    Retries { hash: String, held: String },
    /// `max_attempts` less `attempts`, in a hash under this prefix.
    Meta { prefix: String },
}

impl Layout {
    pub(super) fn of(from: &OldQueue) -> Self {
        match from {
            OldQueue::Zset { key, unit, payloads, .. } => Self {
                places: vec![sorted_set(key.clone(), *unit)],
                consumers: None,
                content: match payloads {
                    None => Content::Member,
                    Some(hash) => Content::Field { hash: hash.clone(), companions: &[] },
                },
                attempts: Attempts::Default,
            },
            OldQueue::Hdt3213 { name, prefix, hash_tag, .. } => {
                let start = |prefix: &str| match hash_tag {
                    true => format!("{{{prefix}:{name}}}"),
                    false => format!("{prefix}:{name}"),
                };
                let queue = start(prefix);
                let list =
                    |part| Place { key: format!("{queue}:{part}"), kind: Kind::ReversedList };
                Self {
                    places: vec![
                        sorted_set(format!("{queue}:pending"), Unit::S),
                        list("ready"),
                        list("retry"),
                        // With the time at which the message would be delivered again.
                        sorted_set(format!("{queue}:unack"), Unit::S),
                    ],
                    consumers: None,
                    // UseCustomPrefix changes the other keys only.
                    content: Content::String { prefix: format!("{}:msg:", start("dp")) },
                    attempts: Attempts::Retries {
                        hash: format!("{queue}:retry:cnt"),
                        held: format!("{queue}:unack"),
                    },
                }
            }
            OldQueue::Redisson { name, .. } => {
                // Redisson adds no hash tag to a name that has one.
                let tagged = if name.contains('{') { name.clone() } else { format!("{{{name}}}") };
                let timeouts = format!("redisson_delay_queue_timeout:{tagged}");
                Self {
                    places: vec![sorted_set(timeouts, Unit::Ms)],
                    consumers: None,
                    content: Content::Redisson { list: format!("redisson_delay_queue:{tagged}") },
                    attempts: Attempts::Default,
                }
            }
            OldQueue::Rsmq { name, namespace, unit, .. } => {
                let queue = format!("{namespace}:{name}");
                Self {
                    places: vec![sorted_set(queue.clone(), *unit)],
                    consumers: None,
                    content: Content::Field {
                        hash: format!("{queue}:Q"),
                        companions: &[":rc", ":fr"],
                    },
                    attempts: Attempts::Default,
                }
            }
            OldQueue::Apalis { name, .. } => Self {
                places: vec![
                    sorted_set(format!("{name}:scheduled"), Unit::S),
                    Place { key: format!("{name}:active"), kind: Kind::List },
                ],
                consumers: Some((format!("{name}:workers"), format!("{name}:inflight:"))),
                content: Content::Field { hash: format!("{name}:data"), companions: &[] },
                attempts: Attempts::Meta { prefix: format!("{name}:meta:") },
            },
        }
    }
}

impl Layout {
    /// Fails if a key belongs to a queue of Delayline, which would be damaged.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let own = format!("{KEY_PREFIX}{{");
        let mut keys = self.places.iter().flat_map(|place| self.watched(place));
        let Some(key) = keys.find(|key| key.starts_with(own.as_bytes())) else { return Ok(()) };
        let key = String::from_utf8_lossy(&key);
        Err(Failure::usage(format!("the key {key} belongs to a queue of Delayline"))
            .hint("nothing was done; name the key of the old queue"))
    }

    /// The keys that must not change while messages of a place are moved.
    pub(super) fn watched(&self, place: &Place) -> Vec<Bytes> {
        let payloads = match &self.content {
            Content::Field { hash, .. } => Some(hash),
            Content::Redisson { list } => Some(list),
            // Strings are written once.
            Content::Member | Content::String { .. } => None,
        };
        [Some(&place.key), payloads].into_iter().flatten().cloned().map(Bytes::from).collect()
    }
}

fn sorted_set(key: String, unit: Unit) -> Place {
    Place { key, kind: Kind::SortedSet(unit) }
}

/// The instant of a score, rounded up to a millisecond, so that nothing is early. `Err` says why it
/// cannot be one.
pub(super) fn due(score: f64, unit: Unit) -> Result<Timestamp, &'static str> {
    const SOON_AFTER_1970: f64 = 1e11; // March 1973, in ms
    const MAX_MS: f64 = 253_402_300_799_999.0;
    let ms = match unit {
        Unit::S => score * 1e3,
        Unit::Ms => score,
        Unit::Us => score / 1e3,
    };
    let ms = ms.ceil();
    if ms > MAX_MS {
        return Err("its score is after the year 9999: is --unit right?");
    }
    // Zero and less is how some say "at once".
    if ms > 0.0 && ms < SOON_AFTER_1970 {
        return Err("its score is before the year 1973: is --unit right?");
    }
    if ms.is_nan() {
        return Err("its score is not a number");
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is a whole number between 0 and the limit"
    )]
    let ms = ms.max(0.0) as u64;
    Timestamp::from_ms(ms).map_err(|_| "its score is after the year 9999: is --unit right?")
}

/// The payload of a member of a Redisson queue: behind 8 random bytes and the length, which is in
/// the server's byte order. A byte in front came with 3.21.1 (redisson/redisson#5595).
pub(super) fn redisson_payload(member: &[u8]) -> Option<&[u8]> {
    let behind = |start: usize| {
        let (length, payload) = member.get(start..)?.split_first_chunk()?;
        (usize::try_from(u64::from_le_bytes(*length)).ok()? == payload.len()).then_some(payload)
    };
    if member.first() == Some(&8)
        && let Some(payload) = behind(9)
    {
        return Some(payload);
    }
    behind(8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_become_instants_that_are_not_early() {
        let ms = |score, unit| due(score, unit).map(Timestamp::as_ms);
        assert_eq!(ms(1_800_000_000.0, Unit::S), Ok(1_800_000_000_000));
        assert_eq!(ms(1_800_000_000.000_4, Unit::S), Ok(1_800_000_000_001));
        assert_eq!(ms(1_800_000_000_000.0, Unit::Ms), Ok(1_800_000_000_000));
        assert_eq!(ms(1_800_000_000_000_001.0, Unit::Us), Ok(1_800_000_000_001));
        assert_eq!(ms(253_402_300_799_999.0, Unit::Ms), Ok(253_402_300_799_999));
        for at_once in [0.0, -0.0, -1.0, f64::NEG_INFINITY] {
            assert_eq!(ms(at_once, Unit::S), Ok(0));
        }
        // In the other unit, beyond the limit, and no number.
        for (score, unit) in [
            (1_800_000_000_000.0, Unit::S),
            (1_800_000_000.0, Unit::Ms),
            (253_402_300_800_000.0, Unit::Ms),
            (f64::INFINITY, Unit::S),
            (f64::NAN, Unit::S),
        ] {
            assert!(ms(score, unit).is_err(), "{score} {unit:?}");
        }
    }

    #[test]
    fn payloads_of_redisson_are_behind_a_random_number() {
        let member = |front: &[u8], length: u64, payload: &[u8]| {
            [front, b"\x08random!", &length.to_le_bytes(), payload].concat()
        };
        assert_eq!(redisson_payload(&member(b"\x08", 5, b"order")), Some(&b"order"[..]));
        assert_eq!(redisson_payload(&member(b"", 5, b"order")), Some(&b"order"[..]));
        assert_eq!(redisson_payload(&member(b"\x08", 0, b"")), Some(&b""[..]));
        for broken in [&b""[..], b"\x08", b"order", &member(b"\x08", 6, b"order"), &[8; 16]] {
            assert_eq!(redisson_payload(broken), None, "{broken:?}");
        }
    }
}
