//! A whole driver without a Redis library: a socket and a reader of RESP. It uses nothing that an
//! author in another repository has not.

mod resp;

use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;
use delayline_core::{Error, ErrorKind};
use delayline_redis_protocol::{
    Address, CallError, ConnectOptions, Connection, Dialer, Driver, DriverTask, DriverTransport,
    Stream, TlsRefusal, Value, log_in,
};
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::sync::{mpsc, oneshot};

use self::resp::Reply;

/// What such a crate exports.
pub(crate) type PlainTransport = DriverTransport<PlainDriver>;

/// Opens connections.
pub(crate) struct PlainDriver {
    /// What `Debug` shows.
    address: String,
    options: ConnectOptions,
    dialer: Dialer,
}

impl fmt::Debug for PlainDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address)
    }
}

#[async_trait]
impl Driver for PlainDriver {
    type Connection = PlainConnection;

    fn new(address: &Address, options: &ConnectOptions) -> Result<Self, Error> {
        let dialer = Dialer::new(address, options.ca_pem.as_deref())?;
        Ok(Self { address: address.to_string(), options: options.clone(), dialer })
    }

    fn database(&self) -> u32 {
        self.options.database
    }

    async fn connect(&self) -> Result<PlainConnection, Error> {
        let stream = self.dialer.dial().await?;
        let (requests, taken) = mpsc::unbounded_channel();
        let refusal = stream.tls_refusal();
        let why = refusal.clone();
        let task = DriverTask::watch(tokio::spawn(drive(stream, taken)), move |_| lost(&why));
        let connection = PlainConnection { requests, task, refusal };
        log_in(&connection, &self.options).await?;
        Ok(connection)
    }
}

/// A command, and the receiver of its reply.
type Request = (Vec<u8>, oneshot::Sender<Reply>);

/// One connection, whose reads and writes run in a separate task.
pub(crate) struct PlainConnection {
    requests: mpsc::UnboundedSender<Request>,
    task: DriverTask,
    refusal: TlsRefusal,
}

/// A request without a reply may have been executed, unless the server refused the connection.
fn lost(refusal: &TlsRefusal) -> Error {
    refusal.or(Error::new(ErrorKind::ConnectionLost))
}

#[async_trait]
impl Connection for PlainConnection {
    async fn request(&self, command: &'static str, args: Vec<Bytes>) -> Result<Value, CallError> {
        let (reply, replied) = oneshot::channel();
        let lost = || CallError::Failed(lost(&self.refusal));
        self.requests.send((resp::encode(command, &args), reply)).map_err(|_| lost())?;
        match self.task.unless_ended(replied).await?.map_err(|_| lost())? {
            Reply::Value(value) => Ok(value),
            Reply::Error(line) => Err(CallError::Reply(line)),
        }
    }

    fn is_closed(&self) -> bool {
        self.task.has_ended()
    }
}

/// Writes requests and hands out replies, in the same order, until the connection ends.
async fn drive(stream: Box<dyn Stream>, mut requests: mpsc::UnboundedReceiver<Request>) {
    let (read, mut write) = tokio::io::split(stream);
    let (waiting, mut next) = mpsc::unbounded_channel();
    let write = async move {
        while let Some((bytes, reply)) = requests.recv().await {
            let _ = waiting.send(reply);
            if write.write_all(&bytes).await.is_err() || write.flush().await.is_err() {
                break;
            }
        }
        // What the server has said before it hung up is still to be read.
        std::future::pending::<()>().await;
    };
    let read = async move {
        let mut read = BufReader::new(read);
        while let Ok(reply) = resp::read(&mut read).await {
            // A server that refuses a connection says so before it is asked.
            let Some(waiter): Option<oneshot::Sender<Reply>> = next.recv().await else { return };
            let _ = waiter.send(reply);
        }
    };
    tokio::select! {
        () = write => {}
        () = read => {}
    }
}
