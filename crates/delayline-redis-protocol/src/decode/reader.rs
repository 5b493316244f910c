//! The values of a reply, one after the other.

use bytes::Bytes;
use delayline_core::{Error, ErrorKind, MessageId, Timestamp};

use crate::transport::Value;

/// The error of a reply that makes no sense.
pub(super) fn unreadable(what: &'static str) -> Error {
    Error::with_detail(ErrorKind::Protocol, what)
}

/// The values that are left.
pub(super) struct Reader(pub(super) std::vec::IntoIter<Value>);

impl Reader {
    pub(super) fn value(&mut self) -> Result<Value, Error> {
        self.0.next().ok_or_else(|| unreadable("the reply is too short"))
    }

    pub(super) fn int(&mut self) -> Result<i64, Error> {
        match self.value()? {
            Value::Int(int) => Ok(int),
            _ => Err(unreadable("an integer is missing")),
        }
    }

    pub(super) fn bytes(&mut self) -> Result<Bytes, Error> {
        match self.value()? {
            Value::Bytes(bytes) => Ok(bytes),
            _ => Err(unreadable("a byte string is missing")),
        }
    }

    pub(super) fn count(&mut self) -> Result<u64, Error> {
        u64::try_from(self.int()?).map_err(|_| unreadable("a count is negative"))
    }

    pub(super) fn small(&mut self) -> Result<u8, Error> {
        u8::try_from(self.int()?).map_err(|_| unreadable("a small number is out of range"))
    }

    pub(super) fn flag(&mut self) -> Result<bool, Error> {
        Ok(self.int()? != 0)
    }

    pub(super) fn instant(&mut self) -> Result<Timestamp, Error> {
        instant(self.int()?)
    }

    pub(super) fn optional_instant(&mut self) -> Result<Option<Timestamp>, Error> {
        match self.int()? {
            -1 => Ok(None),
            ms => instant(ms).map(Some),
        }
    }

    pub(super) fn id(&mut self) -> Result<MessageId, Error> {
        message_id(self.bytes()?)
    }
}

pub(super) fn message_id(bytes: Bytes) -> Result<MessageId, Error> {
    MessageId::new(bytes).map_err(|_| unreadable("an id is out of its limits"))
}

pub(super) fn instant(ms: i64) -> Result<Timestamp, Error> {
    let ms = u64::try_from(ms).map_err(|_| unreadable("an instant is negative"))?;
    Timestamp::from_ms(ms).map_err(|_| unreadable("an instant is out of range"))
}
