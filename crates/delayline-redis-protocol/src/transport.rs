//! The seam between the protocol and a driver: one script call, one wait, one look at the server.

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use delayline_core::{Durability, Error};

use crate::classify::classify;

/// How a script is named in a call.
#[derive(Clone, Copy, Debug)]
pub enum ScriptName<'a> {
    /// By the SHA-1 of its text, in 40 lowercase hexadecimal digits: `EVALSHA`.
    Sha1(&'a str),
    /// By its whole text: `EVAL`.
    Source(&'a str),
}

/// One script call as it goes over the wire.
#[derive(Clone, Copy)]
pub struct ScriptCall<'a> {
    /// Which script.
    pub script: ScriptName<'a>,
    /// `KEYS`: keys of one queue, all in one hash slot.
    pub keys: &'a [Bytes],
    /// `ARGV`.
    pub args: &'a [Bytes],
    /// What has to be safe before it is answered, if anything has.
    pub fence: Option<Fence<'a>>,
}

/// What has to be safe before a call is answered: all that the server has executed until then.
#[derive(Clone, Copy, Debug)]
pub struct Fence<'a> {
    /// Where it has to be.
    pub durability: Durability,
    /// A key in the hash slot of the call's, which may be written and expires.
    pub key: &'a Bytes,
}

/// A reply of a script. Scripts answer with integers, byte strings and arrays only, and the top
/// level is always an array whose first element is an integer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// No value.
    Nil,
    /// A signed integer.
    Int(i64),
    /// A byte string, whatever its bytes.
    Bytes(Bytes),
    /// An array.
    Array(Vec<Self>),
}

/// A call that brought no value.
#[derive(Clone, Debug)]
pub enum CallError {
    /// The server answered with an error: its whole line, without the leading `-`.
    ///
    /// The protocol reads the line ([`classify`](crate::classify)), so that a driver does not have
    /// to.
    Reply(String),
    /// The call failed in this process or on its way; the driver says in which class.
    Failed(Error),
}

impl CallError {
    /// The error, of the class that the server's line has.
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Reply(line) => classify(&line),
            Self::Failed(error) => error,
        }
    }
}

impl From<Error> for CallError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// What a Redis driver does for the protocol.
///
/// # To ensure correctness
///
/// - [`call`](Self::call) sends the call at most once. A driver that re-sends by itself after a
///   lost reply must have that switched off: a second execution may answer differently.
/// - A call whose bytes may have reached the server, and whose reply did not come, fails with an
///   error of [`Class::Ambiguous`](delayline_core::Class::Ambiguous); only a call that was
///   certainly not executed fails with
///   [`Class::NotExecuted`](delayline_core::Class::NotExecuted).
/// - A call with a [`fence`](ScriptCall::fence) is answered when what it asks for is confirmed by the
///   server that has executed the call, and by the same process. What is not confirmed in time fails
///   with [`ErrorKind::Unconfirmed`](delayline_core::ErrorKind::Unconfirmed); what cannot be confirmed
///   is refused before anything is sent.
/// - Every method answers or fails within a bound, also while the server is silent, and the next
///   call after the server has healed works again: a dead, silent or poisoned connection is
///   replaced.
/// - A dropped future leaves the transport usable.
/// - Neither errors nor logs hold arguments, replies or passwords.
#[async_trait]
pub trait Transport: Debug + Send + Sync + 'static {
    /// Runs one script, once.
    ///
    /// # Errors
    ///
    /// [`CallError::Reply`] with the server's error line, or [`CallError::Failed`].
    async fn call(&self, call: ScriptCall<'_>) -> Result<Value, CallError>;

    /// Waits until an element can be popped from the list `bell`, for at most `timeout`, on a
    /// connection that carries nothing else. Answers whether one was popped.
    ///
    /// Only hints are popped, so a popped element that gets lost does no harm.
    ///
    /// # Errors
    ///
    /// Like [`call`](Self::call). The caller waits on its own timer meanwhile.
    async fn wait(&self, bell: &Bytes, timeout: Duration) -> Result<bool, CallError>;

    /// The `INFO` text of the server that has the key: the default sections.
    ///
    /// # Errors
    ///
    /// Like [`call`](Self::call); [`CallError::Reply`] with `NOPERM` where it is not permitted.
    async fn info(&self, key: &Bytes) -> Result<String, CallError>;
}
