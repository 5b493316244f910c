//! What every reply begins with.

use delayline_core::{Error, ErrorKind, Timestamp};

use super::{Reader, unreadable};
use crate::layout::SCHEMA_VERSION;
use crate::layout::codes::answer;
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
        answer::OTHER_VERSION => {
            let (found, supported) = (reply.count()?, SCHEMA_VERSION);
            Error::new(if found > supported {
                ErrorKind::NewerVersion { found, supported }
            } else {
                ErrorKind::OlderVersion { found, supported }
            })
        }
        answer::NEWER_FEATURE => match (reply.count()?, reply.count()?) {
            // Whoever sets a bit says which version knows it.
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
}
