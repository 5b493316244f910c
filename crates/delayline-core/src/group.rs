//! The group of a message.

use std::fmt;
use std::sync::Arc;

use crate::Violation;
use crate::limits::MAX_MESSAGE_GROUP_BYTES;
use crate::names::{bounded, texts, write_printable};

/// The group of a message, such as a tenant or a customer: text of 1 to
/// [`MAX_MESSAGE_GROUP_BYTES`] bytes. Groups with due messages take turns (G35).
///
/// `Display` and `Debug` escape characters that are not printable.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Group(Arc<str>);

impl Group {
    /// What messages with a group have in the place of a priority's level. No priority has it.
    pub(crate) const LEVEL: u8 = 7;

    /// Creates a group after checking its name.
    ///
    /// # Errors
    ///
    /// [`Violation::Empty`] or [`Violation::TooLong`].
    pub fn new(name: impl Into<String>) -> Result<Self, Violation> {
        let name = name.into();
        bounded("the group", name.len(), MAX_MESSAGE_GROUP_BYTES)?;
        Ok(Self(name.into()))
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the number of the group's lane: 47 bits of the name's SHA-1, and never 0. Groups
    /// with the same number share turns.
    #[must_use]
    pub fn lane(&self) -> u64 {
        let digest = sha1_smol::Sha1::from(self.as_str()).digest().bytes();
        let bits = digest.iter().take(6).fold(0, |bits, byte| bits << 8 | u64::from(*byte)) >> 1;
        bits.max(1)
    }
}

texts!(Group);

impl From<&Self> for Group {
    fn from(group: &Self) -> Self {
        group.clone()
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_printable(f, &self.0)
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Group({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_has_a_short_name_and_a_lane() {
        let group = Group::try_from("tenant-7").unwrap();
        assert_eq!((group.as_str(), group.lane()), ("tenant-7", 0x6c99_863e_98d2));
        for name in ["", &"g".repeat(129)] {
            assert!(Group::new(name).is_err(), "{name}");
        }
        assert_eq!(Group::new("a\u{202e}\n").unwrap().to_string(), "a\\u{202e}\\n");
    }
}
