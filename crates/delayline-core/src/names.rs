//! Names of queues, messages and consumers, and the tokens that fence leases.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use bytes::Bytes;

use crate::Violation;
use crate::limits::{MAX_CONSUMER_BYTES, MAX_ID_BYTES, MAX_QUEUE_NAME_BYTES, MAX_SHARDS};

/// Adds conversions from the common text types, by `try_into` and `parse`.
macro_rules! texts {
    ($name:ident) => {
        impl TryFrom<String> for $name {
            type Error = Violation;

            fn try_from(text: String) -> Result<Self, Violation> {
                Self::new(text)
            }
        }

        impl TryFrom<&String> for $name {
            type Error = Violation;

            fn try_from(text: &String) -> Result<Self, Violation> {
                Self::new(text.clone())
            }
        }

        impl TryFrom<&str> for $name {
            type Error = Violation;

            fn try_from(text: &str) -> Result<Self, Violation> {
                Self::new(text.to_owned())
            }
        }

        impl std::str::FromStr for $name {
            type Err = Violation;

            fn from_str(text: &str) -> Result<Self, Violation> {
                Self::try_from(text)
            }
        }
    };
}
pub(crate) use texts;

/// The name of a queue: 1 to 128 of the characters `A-Z a-z 0-9 _ . : / -`.
///
/// The characters are restricted so that keys of different queues never collide (G20): no name can
/// close the hash tag that encloses it. `#` is reserved: a [shard](Self::shard) has the name of its
/// queue, `#` and a number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueName(String);

impl QueueName {
    /// Creates a name after checking it.
    ///
    /// # Errors
    ///
    /// [`Violation::Empty`], [`Violation::TooLong`] or [`Violation::Malformed`].
    pub fn new(name: impl Into<String>) -> Result<Self, Violation> {
        let name = name.into();
        bounded("the queue name", name.len(), MAX_QUEUE_NAME_BYTES)?;
        let allowed = |c: char| c.is_ascii_alphanumeric() || "_.:/-".contains(c);
        match name.chars().find(|&c| !allowed(c)) {
            None => Ok(Self(name)),
            Some('#') => Err(Violation::Malformed {
                what: "the queue name",
                reason: "'#' is reserved for the shards of a queue".to_owned(),
                value: name,
            }),
            Some(character) => Err(Violation::Malformed {
                what: "the queue name",
                reason: format!(
                    "{character:?} is not one of the letters, digits and _ . : / - allowed"
                ),
                value: name,
            }),
        }
    }

    /// Returns the name of a shard of this queue: `orders#3`. Shards are numbered from 0.
    ///
    /// # Errors
    ///
    /// [`Violation::TooLong`] if it is longer than [`MAX_QUEUE_NAME_BYTES`].
    /// [`Violation::Malformed`] if this is the name of a shard.
    /// [`Violation::OutOfRange`] if the number is not below [`MAX_SHARDS`].
    pub fn shard(&self, number: u32) -> Result<Self, Violation> {
        Self::new(self.as_str())?;
        Violation::within("the number of the shard", number.into(), 0, (MAX_SHARDS - 1).into())?;
        let name = format!("{self}#{number}");
        bounded("the name of the shard", name.len(), MAX_QUEUE_NAME_BYTES)?;
        Ok(Self(name))
    }

    /// Reads the name of a queue or of a shard, as a backend has stored it.
    ///
    /// # Errors
    ///
    /// Like [`new`](Self::new) and [`shard`](Self::shard).
    pub fn from_stored(name: &str) -> Result<Self, Violation> {
        let parts = name.split_once('#');
        let shard = parts.and_then(|(queue, number)| Some((queue, number.parse().ok()?)));
        let Some((queue, number)) = shard else { return Self::new(name) };
        let shard = Self::new(queue)?.shard(number)?;
        // A number with leading zeros or a sign is none.
        if shard.as_str() == name { Ok(shard) } else { Self::new(name) }
    }

    /// Returns `true` if this is the name of a shard.
    #[must_use]
    pub fn is_shard(&self) -> bool {
        self.0.contains('#')
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

texts!(QueueName);

impl AsRef<str> for QueueName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// The id of a message: 1 to 128 arbitrary bytes, chosen by the producer. [`SHARDS`](Self::SHARDS)
/// is reserved.
///
/// With an id such as `order-1234`, any process can cancel or reschedule the message, and repeating
/// an enqueue is harmless (G15).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(Arc<[u8]>);

impl MessageId {
    /// The id of the message that holds the number of shards of a queue. [`NewMessage::validate`]
    /// refuses it; [`Op::validate`] does not in an enqueue, because one stores this message.
    ///
    /// [`NewMessage::validate`]: crate::NewMessage::validate
    /// [`Op::validate`]: crate::Op::validate
    pub const SHARDS: &str = "delayline:shards";

    /// Creates an id after checking it.
    ///
    /// # Errors
    ///
    /// [`Violation::Empty`] or [`Violation::TooLong`].
    pub fn new(id: impl Into<Bytes>) -> Result<Self, Violation> {
        let id = id.into();
        bounded("the message id", id.len(), MAX_ID_BYTES)?;
        Ok(Self(Arc::from(&*id)))
    }

    /// Returns the bytes of the id.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the id as text if it is valid UTF-8.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }
}

texts!(MessageId);

/// Calls that take an id also accept a reference to one, such as the id of a message.
impl From<&Self> for MessageId {
    fn from(id: &Self) -> Self {
        id.clone()
    }
}

impl TryFrom<Bytes> for MessageId {
    type Error = Violation;

    fn try_from(id: Bytes) -> Result<Self, Violation> {
        Self::new(id)
    }
}

/// Always printable: invalid UTF-8 and characters that are not [`is_printable`] are escaped. So an
/// id can neither control a terminal nor change the direction of the text around it.
impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            write_printable(f, chunk.valid())?;
            write!(f, "{}", chunk.invalid().escape_ascii())?;
        }
        Ok(())
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MessageId({self})")
    }
}

/// The name of a consumer: 1 to 64 bytes. A consumer makes one claim at a time.
///
/// Used only for the claim journal. Leases belong to claims, not to consumers, so two consumers
/// that share a name only lose the repeatability of their claims (G16).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConsumerName(Bytes);

impl ConsumerName {
    /// Creates a name after checking it.
    ///
    /// # Errors
    ///
    /// [`Violation::Empty`] or [`Violation::TooLong`].
    pub fn new(name: impl Into<Bytes>) -> Result<Self, Violation> {
        let name = name.into();
        bounded("the consumer name", name.len(), MAX_CONSUMER_BYTES)?;
        Ok(Self(name))
    }

    /// Returns the bytes of the name.
    #[must_use]
    pub fn as_bytes(&self) -> &Bytes {
        &self.0
    }
}

texts!(ConsumerName);

impl fmt::Debug for ConsumerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConsumerName({})", self.0.escape_ascii())
    }
}

/// The token of one claim: 128 bits, unique to the claim, which the client chooses before it sends
/// the claim. A worker derives all of its tokens from one random seed, without repetition.
///
/// Repeating the claim with the same token returns the same leases (G16). The core generates none,
/// because it has no randomness.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimId([u8; Self::BYTES]);

impl ClaimId {
    /// Length of a claim id, in bytes.
    pub const BYTES: usize = 16;

    /// Creates a claim id from the given random bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }

    /// Returns the process that made the claim, if its worker chose the id as workers of this
    /// library do: the first half of the id.
    #[must_use]
    pub const fn process(&self) -> ProcessId {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        ProcessId::from_bytes([a, b, c, d, e, f, g, h])
    }
}

/// A process with workers: the half that all of its claim ids have in common. It shows which leases
/// belong together, and is not secret: no lease can be settled with it.
///
/// Displayed as 16 hexadecimal digits, which [`FromStr`](std::str::FromStr) reads.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId([u8; Self::BYTES]);

impl ProcessId {
    /// Length of the id of a process, in bytes.
    pub const BYTES: usize = 8;

    /// Creates the id of a process from the given random bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProcessId({self})")
    }
}

impl std::str::FromStr for ProcessId {
    type Err = Violation;

    fn from_str(text: &str) -> Result<Self, Violation> {
        let is_written = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let is_id = text.len() == 2 * Self::BYTES && text.bytes().all(is_written);
        match u64::from_str_radix(text, 16) {
            Ok(number) if is_id => Ok(Self(number.to_be_bytes())),
            _ => Err(Violation::Malformed {
                what: "the id of a process",
                value: text.to_owned(),
                reason: "it has 16 digits from 0 to 9 and a to f".to_owned(),
            }),
        }
    }
}

impl fmt::Debug for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClaimId(")?;
        for byte in self.0 {
            write!(f, "{byte:02x}")?;
        }
        f.write_str(")")
    }
}

/// The right to settle or extend one delivery: the claim's random token and the message's epoch.
///
/// The epoch alone repeats if a failover or a crash of the server loses a claim; the token alone
/// has no order. Together they are the fence (G6). Handlers can use the epoch as a fencing token
/// for conditional writes, if their claims are confirmed ([`Durability`](crate::Durability)). A new
/// message that reuses an id starts at 1 again, with a higher
/// [`sequence`](crate::MessageInfo::sequence).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
pub struct Lease {
    /// The claim that granted the lease.
    pub claim_id: ClaimId,
    /// The number of claims of the message, including this one.
    pub epoch: u64,
}

/// Returns whether a character may be written to a terminal or a log unescaped. Excluded are
/// control characters, line and paragraph separators, spaces but U+0020, private and unassigned
/// characters. Excluded are also characters that are invisible or change the writing direction,
/// such as U+202E.
///
/// The tables of the standard library decide, which follow Unicode.
#[must_use]
pub fn is_printable(character: char) -> bool {
    if character.is_ascii() {
        return !character.is_ascii_control();
    }
    // Placed after a letter, where combining marks are valid.
    let mut text = [b'a'; 5];
    let length = character.encode_utf8(&mut text[1..]).len();
    let escaped = std::str::from_utf8(&text[..=length]).map(|text| text.escape_debug().count());
    escaped == Ok(2)
}

/// Writes a text with its characters escaped that are not [`is_printable`].
pub(crate) fn write_printable(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    text.chars().try_for_each(|character| {
        if is_printable(character) {
            f.write_char(character)
        } else {
            write!(f, "{}", character.escape_default())
        }
    })
}

pub(crate) fn bounded(what: &'static str, len: usize, limit: usize) -> Result<(), Violation> {
    if len == 0 {
        return Err(Violation::Empty { what });
    }
    Violation::at_most(what, "bytes", len, limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_borrowed_id_names_the_same_message() {
        let id = MessageId::new("order-1").unwrap();
        assert_eq!(MessageId::from(&id), id);
    }

    #[test]
    fn queue_names_cannot_leave_their_hash_tag() {
        for name in ["orders", "a:b/c.d_e-F9", &"q".repeat(128)] {
            assert_eq!(QueueName::new(name).unwrap().as_str(), name);
        }
        for name in ["", "a}", "{a", "a b", "a*", "a?", "a\0", "a\n", "\u{430}", &"q".repeat(129)] {
            assert!(QueueName::new(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn the_character_of_shards_is_reserved() {
        for name in ["orders#1", "#", "#orders", "orders#"] {
            assert_eq!(
                QueueName::new(name).unwrap_err().to_string(),
                format!(
                    "the queue name {name:?} is not valid: '#' is reserved for the shards of a queue"
                )
            );
        }
    }

    #[test]
    fn a_shard_has_the_name_of_its_queue_and_a_number() {
        let queue = QueueName::new("orders").unwrap();
        let shard = queue.shard(63).unwrap();
        assert_eq!(
            (shard.as_str(), shard.is_shard(), queue.is_shard()),
            ("orders#63", true, false)
        );
        assert_eq!(QueueName::from_stored("orders#63").unwrap(), shard);
        assert_eq!(QueueName::from_stored("orders").unwrap(), queue);
        for name in ["orders#64", "orders#03", "orders#+3", "orders#", "#3", "a#1#2", "a b#1"] {
            assert!(QueueName::from_stored(name).is_err(), "{name}");
        }
        assert!(shard.shard(0).is_err() && queue.shard(64).is_err());
        let longest = QueueName::new("q".repeat(126)).unwrap();
        assert!(longest.shard(9).is_ok() && longest.shard(10).is_err());
    }

    #[test]
    fn texts_of_any_kind_become_names() {
        let (text, string) = ("order-1", "order-1".to_owned());
        let id = MessageId::try_from(text).unwrap();
        assert_eq!(MessageId::try_from(&string).unwrap(), id);
        assert_eq!(MessageId::try_from(string.clone()).unwrap(), id);
        assert_eq!(MessageId::try_from(Bytes::from_static(b"order-1")).unwrap(), id);
        assert_eq!(text.parse::<MessageId>().unwrap(), id);
        assert_eq!(string.parse::<QueueName>().unwrap().as_ref(), text);
        assert_eq!(ConsumerName::try_from(text).unwrap().as_bytes(), text);
        assert!(QueueName::try_from("a b".to_owned()).is_err());
        assert!("".parse::<ConsumerName>().is_err());
        assert!(MessageId::try_from("x".repeat(129)).is_err());
    }

    #[test]
    fn names_are_told_as_they_are() {
        assert_eq!(QueueName::new("orders").unwrap().to_string(), "orders");
        let id = MessageId::new("order-1").unwrap();
        assert_eq!((id.as_bytes(), id.as_str()), (&b"order-1"[..], Some("order-1")));
        assert_eq!(format!("{id:?}"), "MessageId(order-1)");
        assert_eq!(MessageId::new(&b"\xff"[..]).unwrap().as_str(), None);
        let consumer = ConsumerName::new(&b"w\n"[..]).unwrap();
        assert_eq!(format!("{consumer:?}"), r"ConsumerName(w\n)");
        let token = ClaimId::from_bytes([0xa5; ClaimId::BYTES]);
        assert_eq!(format!("{token:?}"), format!("ClaimId({})", "a5".repeat(16)));
    }

    #[test]
    fn processes_are_the_first_half_of_their_claim_ids() {
        let mut bytes = [0xa5; ClaimId::BYTES];
        bytes[..2].copy_from_slice(&[0, 0x1f]);
        let process = ClaimId::from_bytes(bytes).process();
        assert_eq!(process.to_string(), "001fa5a5a5a5a5a5");
        assert_eq!(process.to_string().parse(), Ok(process));
        for text in ["", "001fa5a5a5a5a5a", "001FA5A5A5A5A5A5", "+01fa5a5a5a5a5a5", "\u{e9}"] {
            assert!(text.parse::<ProcessId>().is_err(), "{text}");
        }
    }

    #[test]
    fn ids_take_any_bytes_and_print_harmlessly() {
        let id = MessageId::new(&b"\x1b[2Jorder\xff\n\xc3\xa9"[..]).unwrap();
        assert_eq!(id.to_string(), "\\u{1b}[2Jorder\\xff\\n\u{e9}");
        assert_eq!(
            MessageId::new(vec![b'x'; 129]).unwrap_err().to_string(),
            "the message id is 129 bytes long; at most 128 are allowed"
        );
        assert!(MessageId::new("").is_err());
    }

    #[test]
    fn ids_do_not_turn_the_text_around_them() {
        let hidden =
            ['\u{ad}', '\u{61c}', '\u{180e}', '\u{feff}', '\u{fff9}', '\u{e0041}', '\u{85}'];
        let ranges = ['\u{200b}'..='\u{200f}', '\u{2028}'..='\u{202e}', '\u{2060}'..='\u{2069}'];
        for character in ranges.into_iter().flatten().chain(hidden) {
            assert!(!is_printable(character), "{character:?}");
            let id = MessageId::new(format!("a{character}b")).unwrap();
            let shown = format!("a{}b", character.escape_default());
            assert_eq!(
                (id.to_string(), format!("{id:?}")),
                (shown.clone(), format!("MessageId({shown})"))
            );
        }
        // Letters of many scripts, combining marks, quotes and emoji stay unchanged.
        let text = "\u{e9}e\u{301}\u{627}\u{915}\u{94d}\u{937}\u{4e2d}\u{1f600}'\"\\ ";
        assert_eq!(MessageId::new(text).unwrap().to_string(), text);
    }
}
