//! Where a list has ended, as a word.

use std::fmt;
use std::str::FromStr;

use delayline::Timestamp;
use delayline::admin::{Listed, Position};

/// A place in the list of a state: its beginning, or a position in it. Written like `dead` or
/// `dead:5:1796112000007:42`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The state.
    pub status: Listed,
    /// Where in the list; `None` at its beginning.
    pub position: Option<Position>,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.status.name())?;
        match self.position {
            Some(Position { index, instant, sequence }) => {
                write!(f, ":{index}:{}:{sequence}", instant.as_ms())
            }
            None => Ok(()),
        }
    }
}

impl FromStr for Cursor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        read(text).ok_or_else(|| format!("{text:?} is not a cursor printed by `delayline list`"))
    }
}

fn read(text: &str) -> Option<Cursor> {
    let mut parts = text.split(':');
    let name = parts.next()?;
    let status = Listed::ALL.iter().copied().find(|status| status.name() == name)?;
    let Some(index) = parts.next() else { return Some(Cursor { status, position: None }) };
    let index = index.parse().ok()?;
    let instant = Timestamp::from_ms(parts.next()?.parse().ok()?).ok()?;
    let sequence = parts.next()?.parse().ok()?;
    let fits = match status {
        Listed::Leased => index == Position::LEASED,
        Listed::Dead => index == Position::DEAD,
        Listed::Scheduled => index < Position::LEASED || index == Position::GROUPED,
        _ => index < Position::LEASED || index == Position::LANES || index == Position::GROUPED,
    };
    let position = Some(Position { index, instant, sequence });
    (fits && parts.next().is_none()).then_some(Cursor { status, position })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_read_as_they_are_written_and_nothing_else_is() {
        for text in [
            "ready",
            "scheduled:3:0:1",
            "scheduled:7:0:72057594037927937",
            "ready:6:70368744177663:72057594037927937",
            "leased:4:253402300799999:7",
            "dead:5:9:18446744073709551615",
        ] {
            assert_eq!(text.parse::<Cursor>().unwrap().to_string(), text);
        }
        for text in [
            "",
            ":",
            "acked",
            "ready:",
            "ready:4:9:1",
            "scheduled:4:9:1",
            "scheduled:6:9:1",
            "ready:8:9:1",
            "leased:5:9:1",
            "dead:4:9:1",
            "dead:5:9",
            "dead:5:9:1:2",
            "dead:5:253402300800000:1",
            "dead:5:-1:1",
            "dead:5:9:18446744073709551616",
            "DEAD",
        ] {
            assert!(text.parse::<Cursor>().is_err(), "{text:?}");
        }
    }
}
