//! The answers about layouts and to pages of a conversion.

use delayline_core::Error;

use super::head::results;
use super::reader::{Reader, unreadable};
use crate::layout::CONVERTING;
use crate::transport::Value;

/// Which layout a queue has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// There is no such queue.
    Absent,
    /// The queue has lost its control record.
    Unknown,
    /// The queue has this schema version; 0 is a damaged one.
    Version(u64),
    /// The queue is being converted. The versions are 0 if the mark is damaged.
    Converting { from: u64, to: u64 },
}

pub(crate) fn decode_layout(value: Value) -> Result<Layout, Error> {
    let (mut reply, ..) = results(value)?;
    let exists = reply.flag()?;
    let mut byte = || reply.0.next().and_then(|value| u64::try_from(int(value)?).ok());
    Ok(match (exists, byte()) {
        (false, _) => Layout::Absent,
        (true, None) => Layout::Unknown,
        (true, Some(CONVERTING)) => {
            Layout::Converting { from: byte().unwrap_or_default(), to: byte().unwrap_or_default() }
        }
        (true, Some(version)) => Layout::Version(version),
    })
}

fn int(value: Value) -> Option<i64> {
    match value {
        Value::Int(int) => Some(int),
        _ => None,
    }
}

/// What a page of a conversion has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Converted {
    pub(crate) version: u64,
    pub(crate) begun: bool,
    pub(crate) seen: u64,
    pub(crate) total: u64,
}

pub(crate) fn decode_conversion(value: Value) -> Result<Converted, Error> {
    let (mut reply, ..) = results(value)?;
    let converted = read_conversion(&mut reply)?;
    match reply.0.next() {
        None => Ok(converted),
        Some(_) => Err(unreadable("the reply is too long")),
    }
}

fn read_conversion(reply: &mut Reader) -> Result<Converted, Error> {
    Ok(Converted {
        version: reply.count()?,
        begun: reply.flag()?,
        seen: reply.count()?,
        total: reply.count()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(numbers: &[i64]) -> Value {
        Value::Array(numbers.iter().copied().map(Value::Int).collect())
    }

    #[test]
    fn a_layout_is_told_by_the_first_bytes() {
        let layout = |rest: &[i64]| decode_layout(of(&[&[0, 0, 0], rest].concat())).unwrap();
        assert_eq!(layout(&[0]), Layout::Absent);
        assert_eq!(layout(&[1]), Layout::Unknown);
        assert_eq!(layout(&[1, 2, 0, 0]), Layout::Version(2));
        assert_eq!(layout(&[1, 0]), Layout::Version(0));
        assert_eq!(layout(&[1, 255, 2, 3]), Layout::Converting { from: 2, to: 3 });
        assert_eq!(layout(&[1, 255, 2]), Layout::Converting { from: 2, to: 0 });
        assert_eq!(layout(&[1, 255]), Layout::Converting { from: 0, to: 0 });
        assert!(decode_layout(of(&[0, 0, 0])).is_err());
    }

    #[test]
    fn only_an_answer_of_the_right_form_is_read() {
        let converted = Converted { version: 2, begun: true, seen: 5, total: 9 };
        assert_eq!(decode_conversion(of(&[0, 0, 0, 2, 1, 5, 9])).unwrap(), converted);
        for wrong in [&[0, 0, 0, 2, 1, 5][..], &[0, 0, 0, 2, 1, 5, 9, 9], &[0, 0, 0, 2, 1, -5, 9]] {
            assert!(decode_conversion(of(wrong)).is_err(), "{wrong:?}");
        }
    }
}
