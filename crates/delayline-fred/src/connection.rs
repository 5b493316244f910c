//! One connection of fred: a client that lives as long as its socket.

use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use delayline_core::{Error, ErrorKind};
use delayline_redis_protocol::{CallError, Connection, DriverTask, SocketPath, Value};
use fred::clients::Client;
use fred::interfaces::{AuthInterface, ClientLike, Resp3Frame};
use fred::types::{ClusterHash, CustomCommand, RespVersion};
use tokio::sync::Mutex;

use crate::failure;
use crate::order::Order;

/// A client without a reconnect policy. Its router task ends when the socket closes, or if it
/// cannot connect in the first place.
pub struct FredConnection {
    client: Client,
    /// The router would outlive its client.
    router: DriverTask,
    /// The path that the router connects to.
    _socket: Option<SocketPath>,
    order: Order,
    /// Until a script was answered, scripts are sent one by one: if a cluster that is down refuses
    /// the first, the others were not sent.
    trial: Mutex<()>,
    has_passed_trial: AtomicBool,
}

impl FredConnection {
    /// Starts to connect. The first request waits for the result.
    ///
    /// Does not use `Client::init`: if that is dropped, as after a timeout, the router continues,
    /// connects and lives forever.
    pub(crate) fn start(client: Client, socket: Option<SocketPath>, tls: bool) -> Self {
        // Before it ends, fred 10.1.0's router answers every command that it has taken. It drops
        // the ones it cannot answer, which fails them as well, and cancels the ones in its queue. A
        // command that is still unanswered came to the queue after that: it was certainly not sent.
        let router = DriverTask::watch(client.connect(), move |ended| match ended {
            Ok(Err(error)) => failure::of_connecting(&error, tls),
            Ok(Ok(())) | Err(_) => failure::not_sent(),
        });
        let (order, trial, has_passed_trial) = Default::default();
        Self { client, router, _socket: socket, order, trial, has_passed_trial }
    }

    /// Switches to RESP3.
    ///
    /// # Errors
    ///
    /// The server refuses, or could not be reached.
    pub(crate) async fn switch_to_resp3(&self) -> Result<(), Error> {
        let hello = self.client.hello(RespVersion::RESP3, None, None);
        self.router.unless_ended(hello).await?.map_err(|error| failure::of_hello(&error))
    }
}

#[async_trait]
impl Connection for FredConnection {
    async fn request(&self, command: &'static str, args: Vec<Bytes>) -> Result<Value, CallError> {
        // Other commands need no slot, or block.
        let is_script = ["EVAL", "EVALSHA"].contains(&command);
        let trial = if is_script && !self.has_passed_trial.load(Ordering::Acquire) {
            let turn = self.trial.lock().await;
            Some(turn).filter(|_| !self.has_passed_trial.load(Ordering::Acquire))
        } else {
            None
        };
        let command = CustomCommand::new_static(command, ClusterHash::FirstKey, false);
        // The raw frame: fred's own conversion mixes the server's errors with its own.
        let reply = self.order.number(self.client.custom_raw(command, args));
        let (reply, number) = self.router.unless_ended(reply).await?;
        match reply {
            Ok(frame) => {
                self.order.answered(number);
                if trial.is_some() {
                    self.has_passed_trial.store(true, Ordering::Release);
                }
                converted_reply(frame)
            }
            Err(error) => match failure::cluster_down(&error) {
                Some(line) if self.order.is_next(number) => Err(CallError::Reply(line)),
                _ => Err(failure::of_request(&error).into()),
            },
        }
    }

    fn is_closed(&self) -> bool {
        self.router.has_ended()
    }
}

fn converted_reply(frame: Resp3Frame) -> Result<Value, CallError> {
    match frame {
        Resp3Frame::SimpleError { data, .. } => Err(CallError::Reply(data.to_string())),
        Resp3Frame::BlobError { data, .. } => {
            Err(CallError::Reply(String::from_utf8_lossy(&data).into_owned()))
        }
        frame => converted(frame).map_err(CallError::Failed),
    }
}

fn converted(frame: Resp3Frame) -> Result<Value, Error> {
    Ok(match frame {
        Resp3Frame::Null => Value::Nil,
        Resp3Frame::Number { data, .. } => Value::Int(data),
        Resp3Frame::BlobString { data, .. }
        | Resp3Frame::SimpleString { data, .. }
        | Resp3Frame::VerbatimString { data, .. } => Value::Bytes(data),
        Resp3Frame::Array { data, .. } => array(data)?,
        // Flat, as RESP2 would send it.
        Resp3Frame::Map { data, .. } => array(data.into_iter().flat_map(<[_; 2]>::from))?,
        // With RESP2, fred takes an inner array like `{"message", a, b}` for a message of a channel
        // and puts this word in front. At the top level it would be lost: there, the first element
        // is always an integer.
        Resp3Frame::Push { data, .. } if data.first().is_some_and(is_channel_mark) => {
            array(data.into_iter().skip(1))?
        }
        // Without the value, which may contain a payload.
        _ => return Err(Error::with_detail(ErrorKind::Protocol, "a reply of an unexpected type")),
    })
}

fn array(frames: impl IntoIterator<Item = Resp3Frame>) -> Result<Value, Error> {
    frames.into_iter().map(converted).collect::<Result<_, _>>().map(Value::Array)
}

/// The word is a simple string, which no script returns inside an array.
fn is_channel_mark(frame: &Resp3Frame) -> bool {
    matches!(frame, Resp3Frame::SimpleString { data, .. } if data == "pubsub")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unexpected_type_is_refused_without_its_value() {
        let secret = Resp3Frame::BlobString { data: "secret".into(), attributes: None };
        let set = Resp3Frame::Set { data: [secret].into(), attributes: None };
        let error = converted(set).unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::Protocol);
        assert!(!format!("{error:?}").contains("secret"));
    }
}
