//! The durability that an operation must have before its call returns.

use std::fmt;
use std::str::FromStr;

use crate::Violation;
use crate::limits::MAX_REPLICAS;

/// Where the effect of an operation must be stored before the call returns (G25).
///
/// An operation that is executed but not confirmed in time fails with
/// [`ErrorKind::Unconfirmed`](crate::ErrorKind::Unconfirmed). It can safely be repeated, and is
/// then confirmed again. A backend that cannot confirm it refuses it with
/// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) before sending anything.
///
/// ```
/// use delayline_core::Durability;
///
/// assert_eq!("replicas=2".parse(), Ok(Durability::Replicas(2)));
/// assert_eq!(Durability::Disk.to_string(), "disk");
/// assert!("replicas=0".parse::<Durability>().is_err());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Durability {
    /// In the memory of the server that executes it. As text: `none`.
    #[default]
    None,
    /// Also in the memory of this many replicas of it: 1 to [`MAX_REPLICAS`]. As text:
    /// `replicas=1`.
    Replicas(u32),
    /// Also on the disk of the server that executes it. As text: `disk`.
    Disk,
}

impl Durability {
    /// Checks the number of replicas.
    ///
    /// # Errors
    ///
    /// [`Violation::OutOfRange`] if it is 0 or more than [`MAX_REPLICAS`].
    pub fn validate(self) -> Result<(), Violation> {
        match self {
            Self::Replicas(count) => Violation::within(
                "the number of replicas",
                u64::from(count),
                1,
                u64::from(MAX_REPLICAS),
            ),
            Self::None | Self::Disk => Ok(()),
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Replicas(count) => write!(f, "replicas={count}"),
            Self::Disk => f.write_str("disk"),
        }
    }
}

/// Parses `none`, `replicas=N` and `disk`.
impl FromStr for Durability {
    type Err = Violation;

    fn from_str(text: &str) -> Result<Self, Violation> {
        let count = text.strip_prefix("replicas=").and_then(|count| count.parse().ok());
        let durability = match (text, count) {
            ("none", _) => Self::None,
            ("disk", _) => Self::Disk,
            (_, Some(count)) => Self::Replicas(count),
            (_, None) => {
                let reason = "it must be none, disk or replicas=N".to_owned();
                let value = text.to_owned();
                return Err(Violation::Malformed { what: "the durability", value, reason });
            }
        };
        durability.validate()?;
        Ok(durability)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_as_they_are_shown() {
        for durability in [Durability::None, Durability::Disk, Durability::Replicas(MAX_REPLICAS)] {
            assert_eq!(durability.to_string().parse(), Ok(durability));
        }
        for bad in ["", "Disk", "replicas", "replicas=", "replicas=-1", "replicas=1x", "all"] {
            assert!(matches!(bad.parse::<Durability>(), Err(Violation::Malformed { .. })), "{bad}");
        }
    }

    #[test]
    fn numbers_of_replicas_have_limits() {
        for bad in [0, MAX_REPLICAS + 1, u32::MAX] {
            let refusal = Durability::Replicas(bad).validate().unwrap_err();
            assert!(refusal.to_string().contains(&format!("from 1 to {MAX_REPLICAS}")));
            assert_eq!(format!("replicas={bad}").parse::<Durability>(), Err(refusal));
        }
        assert_eq!(Durability::Replicas(1).validate(), Ok(()));
    }
}
