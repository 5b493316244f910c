//! What every reply begins with.

use delayline_core::{Error, ErrorKind, Timestamp};

use super::reader::{Reader, unreadable};
use crate::layout::codes::answer;
use crate::layout::{CONVERTING, SCHEMA_VERSION};
use crate::transport::Value;

/// The results of a script, its clock and the revision.
pub(super) fn results(value: Value) -> Result<(Reader, Timestamp, u64), Error> {
    let Value::Array(values) = value else { return Err(unreadable("the reply is not an array")) };
    let mut reply = Reader(values.into_iter());
    match reply.int()? {
        answer::RESULTS => {}
        refused => return Err(refusal(refused, &mut reply)?),
    }
    let at = reply.instant()?;
    let revision = reply.count()?;
    Ok((reply, at, revision))
}

/// Why the script has done nothing, by a reply that begins with `code`.
///
/// # Errors
///
/// [`ErrorKind::Protocol`] if the reply is invalid.
fn refusal(code: i64, reply: &mut Reader) -> Result<Error, Error> {
    Ok(match code {
        answer::OTHER_VERSION => other_version(reply.count()?, reply),
        answer::NEWER_FEATURE => match (reply.count()?, reply.count()?) {
            // A library that sets a bit also stores the version that introduced it.
            (0, 0) => Error::new(ErrorKind::Damaged),
            (major, minor) => Error::new(ErrorKind::NewerFeature { major, minor }),
        },
        answer::DAMAGED => Error::new(ErrorKind::Damaged),
        answer::NO_LAG => {
            let detail = "Redis 7.0 and later tell how far a group of consumers is";
            Error::with_detail(ErrorKind::Unsupported("a stream's backlog"), detail)
        }
        _ => return Err(unreadable("the reply begins with an unknown number")),
    })
}

/// Why a queue is refused whose control record begins with `found`, and then with what the reply
/// has.
fn other_version(found: u64, reply: &mut Reader) -> Error {
    let supported = SCHEMA_VERSION;
    if found == CONVERTING {
        return match (reply.count(), reply.count()) {
            (Ok(from), Ok(to)) if from > 0 && from + 1 == to => {
                Error::new(ErrorKind::Upgrading { from, to })
            }
            _ => Error::with_detail(
                ErrorKind::Damaged,
                "the mark of an upgrade; `delayline upgrade` says what helps",
            ),
        };
    }
    Error::new(if found > supported {
        ErrorKind::NewerVersion { found, supported }
    } else {
        ErrorKind::OlderVersion { found, supported }
    })
}

#[cfg(test)]
mod tests {
    use delayline_core::Op;

    use super::*;
    use crate::Value;
    use crate::decode::decode;

    #[test]
    fn older_versions_are_told_from_newer_ones() {
        let refused = |found: u64| {
            let found = i64::try_from(found).unwrap();
            let reply = vec![Value::Int(answer::OTHER_VERSION), Value::Int(found)];
            decode(&Op::Stats, Value::Array(reply)).unwrap_err().kind().clone()
        };
        let (found, supported) = (SCHEMA_VERSION + 1, SCHEMA_VERSION);
        assert_eq!(refused(found), ErrorKind::NewerVersion { found, supported });
        let found = SCHEMA_VERSION - 1;
        assert_eq!(refused(found), ErrorKind::OlderVersion { found, supported });
    }

    #[test]
    fn a_conversion_is_told_from_other_versions_and_from_a_damaged_one() {
        let refused = |numbers: &[i64]| {
            let numbers = [&[answer::OTHER_VERSION][..], numbers].concat();
            let reply = numbers.into_iter().map(Value::Int).collect();
            decode(&Op::Stats, Value::Array(reply)).unwrap_err().kind().clone()
        };
        assert_eq!(refused(&[255, 2, 3]), ErrorKind::Upgrading { from: 2, to: 3 });
        for damaged in [&[255, 3, 3][..], &[255, 2, 4], &[255, 0, 1], &[255, 2], &[255]] {
            assert_eq!(refused(damaged), ErrorKind::Damaged, "{damaged:?}");
        }
    }
}
