//! Names that callers choose: queues, messages, consumers, and the tokens that fence leases.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;

use crate::Violation;
use crate::limits::{MAX_CONSUMER_BYTES, MAX_ID_BYTES, MAX_QUEUE_NAME_BYTES};

/// Lets a text of any kind be made a name by `try_into` and `parse`.
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

        impl FromStr for $name {
            type Err = Violation;

            fn from_str(text: &str) -> Result<Self, Violation> {
                Self::try_from(text)
            }
        }
    };
}

/// The name of a queue: 1 to 128 of the characters `A-Z a-z 0-9 _ . : / -`.
///
/// The characters are few so that the keys of two queues can never meet (G20): a name cannot
/// close the hash tag that it stands in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueName(String);

impl QueueName {
    /// Checks a name.
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
            Some(character) => Err(Violation::Malformed {
                what: "the queue name",
                reason: format!(
                    "{character:?} is not one of the letters, digits and _ . : / - allowed"
                ),
                value: name,
            }),
        }
    }

    /// The name.
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

/// The id of a message: 1 to 128 bytes, any bytes, chosen by whoever enqueues it.
///
/// An id such as `order-1234` lets any process cancel or reschedule the message by name, and makes
/// a repeated enqueue harmless (G15).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(Bytes);

impl MessageId {
    /// Checks an id.
    ///
    /// # Errors
    ///
    /// [`Violation::Empty`] or [`Violation::TooLong`].
    pub fn new(id: impl Into<Bytes>) -> Result<Self, Violation> {
        let id = id.into();
        bounded("the message id", id.len(), MAX_ID_BYTES)?;
        Ok(Self(id))
    }

    /// The bytes of the id.
    #[must_use]
    pub fn as_bytes(&self) -> &Bytes {
        &self.0
    }

    /// The id as text, if it is UTF-8.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }
}

texts!(MessageId);

impl TryFrom<Bytes> for MessageId {
    type Error = Violation;

    fn try_from(id: Bytes) -> Result<Self, Violation> {
        Self::new(id)
    }
}

/// Printable whatever the bytes: what is not [`is_printable`] and invalid UTF-8 are escaped, so that
/// an id can neither steer a terminal nor turn the direction of the text around it.
impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for character in chunk.valid().chars() {
                if is_printable(character) {
                    write!(f, "{character}")?;
                } else {
                    write!(f, "{}", character.escape_default())?;
                }
            }
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

/// The name of a consumer: 1 to 64 bytes. One consumer makes one claim at a time.
///
/// It is a label for the claim journal only. Leases belong to claims, not to consumers, so two
/// consumers that share a name lose nothing but the repeatability of their claims (G16).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConsumerName(Bytes);

impl ConsumerName {
    /// Checks a name.
    ///
    /// # Errors
    ///
    /// [`Violation::Empty`] or [`Violation::TooLong`].
    pub fn new(name: impl Into<Bytes>) -> Result<Self, Violation> {
        let name = name.into();
        bounded("the consumer name", name.len(), MAX_CONSUMER_BYTES)?;
        Ok(Self(name))
    }

    /// The bytes of the name.
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

/// The token of one claim: 128 bits that no other claim has, made by the client before it sends the
/// claim. A worker makes all of its tokens from one random seed, and none twice.
///
/// Sending the claim again with the same token answers with the same leases (G16). The core makes
/// none, because it has no randomness.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimId([u8; Self::BYTES]);

impl ClaimId {
    /// Length of a claim id.
    pub const BYTES: usize = 16;

    /// A claim id of the given random bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
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
/// The epoch alone would repeat after a server has lost the end of its log; the token alone cannot
/// be ordered. Both together are the fence (G6). A handler may use the epoch as the fencing number
/// of its own conditional writes: it rises at every claim of the message. A new message under an id that
/// was used before starts at 1 again, with a higher
/// [`sequence`](crate::MessageInfo::sequence).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lease {
    /// The claim that took the lease.
    pub claim_id: ClaimId,
    /// How often the message has been claimed, this claim included.
    pub epoch: u64,
}

/// Whether a character may go to a terminal or a log as it is. Control characters, those that are
/// invisible or change the direction of writing (U+202E and the like), line and paragraph
/// separators, spaces other than U+0020, private and unassigned characters may not.
///
/// The standard library's tables decide, which follow Unicode.
#[must_use]
pub fn is_printable(character: char) -> bool {
    if character.is_ascii() {
        return !character.is_ascii_control();
    }
    // Behind a letter, where marks that combine with one are in their place.
    let mut text = [b'a'; 5];
    let length = character.encode_utf8(&mut text[1..]).len();
    let escaped = std::str::from_utf8(&text[..=length]).map(|text| text.escape_debug().count());
    escaped == Ok(2)
}

fn bounded(what: &'static str, len: usize, limit: usize) -> Result<(), Violation> {
    if len == 0 {
        return Err(Violation::Empty { what });
    }
    Violation::at_most(what, "bytes", len, limit)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!((&id.as_bytes()[..], id.as_str()), (&b"order-1"[..], Some("order-1")));
        assert_eq!(format!("{id:?}"), "MessageId(order-1)");
        assert_eq!(MessageId::new(&b"\xff"[..]).unwrap().as_str(), None);
        let consumer = ConsumerName::new(&b"w\n"[..]).unwrap();
        assert_eq!(format!("{consumer:?}"), r"ConsumerName(w\n)");
        let token = ClaimId::from_bytes([0xa5; ClaimId::BYTES]);
        assert_eq!(format!("{token:?}"), format!("ClaimId({})", "a5".repeat(16)));
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
        // Letters of many scripts, marks that combine, quotes and pictures stay as they are.
        let text = "\u{e9}e\u{301}\u{627}\u{915}\u{94d}\u{937}\u{4e2d}\u{1f600}'\"\\ ";
        assert_eq!(MessageId::new(text).unwrap().to_string(), text);
    }
}
