//! The interface between the protocol and a driver: script calls, waits, and what operators ask.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use delayline_core::{Durability, Error, ErrorKind, QueueName};

use crate::classify::classify;
use crate::workers::{WorkerList, WorkerProcess};

/// How a call names its script.
#[derive(Clone, Copy, Debug)]
pub enum ScriptName<'a> {
    /// By the SHA-1 of its source, in 40 lowercase hexadecimal digits: `EVALSHA`.
    Sha1(&'a str),
    /// By its whole source: `EVAL`.
    Source(&'a str),
}

/// One script call as it goes over the wire.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct ScriptCall<'a> {
    /// The script.
    pub script: ScriptName<'a>,
    /// `KEYS`.
    pub keys: &'a [Bytes],
    /// `ARGV`.
    pub args: &'a [Bytes],
    /// The durability to confirm before the call returns, if any.
    pub fence: Option<Fence<'a>>,
}

impl<'a> ScriptCall<'a> {
    /// A call without a durability to confirm.
    #[must_use]
    pub const fn new(script: ScriptName<'a>, keys: &'a [Bytes], args: &'a [Bytes]) -> Self {
        Self { script, keys, args, fence: None }
    }
}

/// The durability to confirm before a call returns. It covers everything that the server has
/// executed until then (G25).
#[derive(Clone, Copy, Debug)]
pub struct Fence<'a> {
    /// The durability to confirm.
    pub durability: Durability,
    /// A key in the hash slot of the call's, which may be written and expires.
    pub key: &'a Bytes,
}

/// The reply of a script. Scripts return only integers, byte strings and arrays; the top level is
/// always an array whose first element is an integer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// No value.
    Nil,
    /// A signed integer.
    Int(i64),
    /// A byte string with any bytes.
    Bytes(Bytes),
    /// An array.
    Array(Vec<Self>),
}

/// Why a call returned no value.
#[derive(Clone, Debug)]
pub enum CallError {
    /// The server replied with an error: the whole line, without the leading `-`.
    ///
    /// The protocol interprets the line ([`classify`](crate::classify)), so that drivers need not.
    Reply(String),
    /// The call failed in this process or on its way; the driver sets the class.
    Failed(Error),
}

impl CallError {
    /// Converts to an error, with the class that follows from the server's line.
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

/// The queues that [`Transport::queues`] has found.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct QueueList {
    /// Their names.
    pub names: BTreeSet<QueueName>,
    /// Whether all keys of all primaries were read; otherwise there may be more queues.
    pub complete: bool,
    /// The error of the primaries that could not be read, with the address of each.
    pub failure: Option<Error>,
}

/// What the protocol needs from a Redis driver.
///
/// # Requirements
///
/// - [`call`](Self::call) sends the call at most once. A driver that re-sends on its own after a
///   lost reply must have that switched off: a second execution may reply differently.
/// - A call whose bytes may have reached the server, and whose reply did not arrive, fails with an
///   error of [`ErrorClass::Ambiguous`](delayline_core::ErrorClass::Ambiguous); only a call that
///   was certainly not executed fails with
///   [`ErrorClass::NotExecuted`](delayline_core::ErrorClass::NotExecuted).
/// - A call with a [`fence`](ScriptCall::fence) returns once its durability is confirmed by the
///   server process that executed the call. A call that is not confirmed in time fails with
///   [`ErrorKind::Unconfirmed`](delayline_core::ErrorKind::Unconfirmed); what cannot be confirmed
///   is refused before anything is sent.
/// - Every method returns or fails within a bounded time, even while the server is silent. Once the
///   server has recovered, the next call works again: a dead, silent or poisoned connection is
///   replaced.
/// - Dropping a future leaves the transport usable.
/// - Errors and logs contain no arguments, replies or passwords.
#[async_trait]
pub trait Transport: Debug + Send + Sync + 'static {
    /// Runs one script, once.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the script may or may not be executed. The transport stays usable.
    ///
    /// # Errors
    ///
    /// [`CallError::Reply`] with the server's error line, or [`CallError::Failed`].
    async fn call(&self, call: ScriptCall<'_>) -> Result<Value, CallError>;

    /// Waits until an element can be popped from the list `bell`, for at most `timeout`, on a
    /// connection that carries no calls. Returns whether one was popped.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, an element may be popped later. If `bell` is that of a queue, the
    /// element is used for another wait or pushed again. It may be lost if that fails, which does
    /// no harm: elements of the bell are only hints.
    ///
    /// # Errors
    ///
    /// Like [`call`](Self::call). The caller then relies on its own timer.
    async fn wait(&self, bell: &Bytes, timeout: Duration) -> Result<bool, CallError>;

    /// Returns the default sections of `INFO` from the server that has the key.
    ///
    /// # Cancel safety
    ///
    /// This call changes nothing; its future can be dropped.
    ///
    /// # Errors
    ///
    /// Like [`call`](Self::call); [`CallError::Reply`] with `NOPERM` if the user may not call it,
    /// or with `ERR unknown command` if the server has none.
    async fn info(&self, key: &Bytes) -> Result<String, CallError>;

    /// Returns the names of the queues on the server, or on all primaries of a cluster. Changes
    /// nothing.
    ///
    /// Reads the names of keys with `SCAN`, 1,000 at a time, and of about `most_keys` keys of each
    /// server at most. All primaries are asked at once. A queue that is created meanwhile, or moves
    /// to another node of a cluster, may be missing.
    ///
    /// # Cancel safety
    ///
    /// This call changes nothing; its future can be dropped.
    ///
    /// # Errors
    ///
    /// No server can be reached, or the user may not run `SCAN` on any. If only some primaries of a
    /// cluster fail, the queues of the others are returned, with [`QueueList::failure`].
    /// [`ErrorKind::Unsupported`](delayline_core::ErrorKind::Unsupported) by default.
    async fn queues(&self, most_keys: u64) -> Result<QueueList, Error> {
        let _ = most_keys;
        Err(Error::new(ErrorKind::Unsupported("a list of queues")))
    }

    /// Names the connections that carry calls, both open and future ones, so that
    /// [`workers`](Self::workers) lists the process; `None` removes the name. The last call counts.
    /// If the server refuses, nothing else changes. Does nothing by default.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, some of the open connections may not have the name.
    async fn introduce(&self, process: Option<&WorkerProcess>) {
        let _ = process;
    }

    /// Returns the processes with workers that are connected to this database of the server, or to
    /// any primary of a cluster, and have [introduced](Self::introduce) themselves. Sends `CLIENT
    /// LIST`, and reads up to 1,000 connections of workers.
    ///
    /// # Cancel safety
    ///
    /// This call changes nothing; its future can be dropped.
    ///
    /// # Errors
    ///
    /// No server can be reached, or the user may not run `CLIENT LIST` on any. If only some
    /// primaries of a cluster fail, the others are listed, with [`WorkerList::failure`].
    /// [`ErrorKind::Unsupported`](delayline_core::ErrorKind::Unsupported) by default.
    async fn workers(&self) -> Result<WorkerList, Error> {
        Err(Error::new(ErrorKind::Unsupported("a list of workers")))
    }
}
