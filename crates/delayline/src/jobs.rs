//! Several types of payloads in one queue.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use delayline_core::{Headers, Violation};
use futures_util::future::{BoxFuture, FutureExt};
use tracing::Span;

use crate::codec::{CodecError, Decode, Encode, Json};
use crate::worker::{HandlerError, WorkerBuilder};
use crate::{Draft, Error, Job, Outcome, Queue, Worker};

/// A type of payload that shares its queue with others: see [`Jobs`].
pub trait Kind {
    /// The name of the type, such as `close-order`: 1 to 64 bytes of printable characters.
    /// It is stored with each message, so it must stay the same when the type is renamed.
    const KIND: &'static str;
}

/// Sends and handles several types of payloads in one queue, each with its own handler.
///
/// ```
/// use delayline::{Error, Job, Jobs, Kind, Outcome, with_state};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct CloseOrder {
///     order: u64,
/// }
///
/// impl Kind for CloseOrder {
///     const KIND: &'static str = "close-order";
/// }
///
/// #[derive(Serialize, Deserialize)]
/// struct SendText {
///     to: String,
/// }
///
/// impl Kind for SendText {
///     const KIND: &'static str = "send-text";
/// }
///
/// async fn send_text(job: Job<SendText>) -> Result<(), std::io::Error> {
///     println!("a text to {}", job.payload().to);
///     Ok(())
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// let queue = delayline::connect("memory:").await?.queue("jobs").await?;
/// let jobs = Jobs::new(queue);
/// assert!(jobs.message(&CloseOrder { order: 17 }).id("close-17").send().await?.is_accepted());
///
/// // What handlers share: a pool of connections, for example.
/// let shop = "acme".to_owned();
/// let next = jobs.clone();
/// let jobs = jobs.on(send_text).on(with_state((shop, next), |(shop, next), job| async move {
///     let job: Job<CloseOrder> = job;
///     println!("{shop} closes order {}", job.payload().order);
///     Outcome::Ack.then([next.message(&SendText { to: "+49 30 1".to_owned() })])
/// }));
/// let worker = jobs.worker().until_empty(true).build()?;
/// assert_eq!(worker.run(jobs.handler()?).await.acked, 2);
/// # Ok(())
/// # }
/// ```
///
/// The [kind](Kind::KIND) is in the header [`Headers::KIND`], and thus part of the content: the
/// same id with another kind is a conflict ([G15](crate::guarantees#g15)). One codec serves all
/// kinds.
///
/// **Every worker of the queue should know all its kinds.** If a worker has no handler for a kind,
/// it treats the payload as undecodable. By default, that is a failure, and the message is retried,
/// possibly by another worker ([`WorkerBuilder::on_undecodable`]). So deploy workers before
/// producers.
///
/// Clones are cheap and share the connection.
pub struct Jobs<C = Json> {
    queue: Queue<AnyKind, C>,
    handlers: BTreeMap<&'static str, Handler<C>>,
    /// The first handler that was refused.
    refused: Option<Violation>,
}

/// The payload of a queue of [`Jobs`], before it is decoded by its kind.
#[derive(Clone, PartialEq, Eq)]
pub struct AnyKind(Bytes);

/// The codec of a worker of [`Jobs`], which decodes each payload once its kind is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Undecoded;

type Work = BoxFuture<'static, Result<Outcome, Outcome>>;

/// Decodes a payload and starts its handler.
type Handler<C> = Arc<dyn Fn(&C, Job<AnyKind>) -> Result<Work, CodecError> + Send + Sync>;

impl<C> Jobs<C> {
    /// Creates the jobs of a queue, without handlers, which is enough for sending.
    #[must_use]
    pub const fn new(queue: Queue<AnyKind, C>) -> Self {
        Self { queue, handlers: BTreeMap::new(), refused: None }
    }

    /// The queue, to cancel, look up and count messages of all kinds.
    #[must_use]
    pub const fn queue(&self) -> &Queue<AnyKind, C> {
        &self.queue
    }

    /// Returns a message of the kind of `value`, to configure and then [`send`](Draft::send): like
    /// [`Queue::message`].
    pub fn message<T: Kind + ?Sized>(&self, value: &T) -> Draft
    where
        C: Encode<T>,
    {
        self.queue.draft(self.queue.encoding().encode(value)).kind(T::KIND)
    }

    /// Adds the handler of a kind: a handler as for [`Worker::run`], whose job type determines the
    /// kind. Handlers share state through [`with_state`](crate::with_state), or capture it.
    ///
    /// If a kind has two handlers or is outside its limits, [`handler`](Self::handler) fails.
    #[must_use]
    pub fn on<T, H, F, O, E, K>(mut self, handler: H) -> Self
    where
        T: Kind + Send + 'static,
        C: Decode<T>,
        H: Fn(Job<T>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<O, E>> + Send + 'static,
        O: Into<Outcome> + 'static,
        E: HandlerError<K> + 'static,
    {
        let handler: Handler<C> = Arc::new(move |codec, job| {
            let payload = codec.decode(&job.payload().0)?;
            let work = handler(job.with_payload(payload));
            Ok(work.map(|ended| ended.map(Into::into).map_err(HandlerError::into_outcome)).boxed())
        });
        let is_repeated = self.handlers.insert(T::KIND, handler).is_some();
        let refusal = if is_repeated {
            let reason = "it has two handlers".to_owned();
            Some(Violation::Malformed { what: "the kind", value: T::KIND.to_owned(), reason })
        } else {
            Headers::new().set_kind(T::KIND).err()
        };
        self.refused = self.refused.or(refusal);
        self
    }

    /// Configures a worker of the queue: like [`Worker::builder`].
    pub fn worker(&self) -> WorkerBuilder<AnyKind, Undecoded> {
        Worker::builder(self.queue.codec(Undecoded))
    }
}

impl<C: Send + Sync + 'static> Jobs<C> {
    /// Returns the handler of all kinds, for [`Worker::run`],
    /// [`Workers::add`](crate::Workers::add) and tests.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if a kind has two handlers or is outside
    /// its limits.
    pub fn handler(
        &self,
    ) -> Result<impl Fn(Job<AnyKind>) -> Work + Clone + Send + Sync + 'static, Error> {
        if let Some(violation) = &self.refused {
            return Err(violation.clone().into());
        }
        let all = Arc::new((Arc::clone(self.queue.encoding()), self.handlers.clone()));
        Ok(move |job: Job<AnyKind>| {
            let all = Arc::clone(&all);
            async move {
                let (codec, handlers) = &*all;
                let known = job.headers().kind().and_then(|kind| handlers.get_key_value(kind));
                let control = Arc::clone(job.control());
                control.set_kind(known.map_or(UNKNOWN, |(kind, _)| kind));
                Span::current().record("delayline.kind", control.kind());
                let begun = match known {
                    Some((_, handler)) => handler(codec, job),
                    None => Err(unknown(job.headers().kind())),
                };
                match begun {
                    Ok(work) => work.await,
                    Err(error) => {
                        control.set_undecodable(error);
                        // The worker decides.
                        Ok(Outcome::Release)
                    }
                }
            }
            .boxed()
        })
    }
}

fn unknown(kind: Option<&str>) -> CodecError {
    CodecError::new(match kind {
        Some(kind) => format!("this worker has no handler for the kind {kind}"),
        None => "the message has no kind".to_owned(),
    })
}

impl<C> Clone for Jobs<C> {
    fn clone(&self) -> Self {
        let Self { queue, handlers, refused } = self;
        Self { queue: queue.clone(), handlers: handlers.clone(), refused: refused.clone() }
    }
}

impl<C> fmt::Debug for Jobs<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jobs")
            .field("queue", &self.queue)
            .field("kinds", &self.handlers.keys())
            .finish_non_exhaustive()
    }
}

impl AnyKind {
    /// The payload as it was sent.
    #[must_use]
    pub const fn as_bytes(&self) -> &Bytes {
        &self.0
    }
}

/// Leaves out the payload.
impl fmt::Debug for AnyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyKind").field("bytes", &self.0.len()).finish()
    }
}

impl Decode<AnyKind> for Undecoded {
    fn decode(&self, payload: &Bytes) -> Result<AnyKind, CodecError> {
        Ok(AnyKind(payload.clone()))
    }
}

/// For [`testing`](crate::testing), which runs handlers without a worker.
#[cfg(feature = "json")]
impl Decode<AnyKind> for Json {
    fn decode(&self, payload: &Bytes) -> Result<AnyKind, CodecError> {
        Undecoded.decode(payload)
    }
}

/// The label of metrics of messages that have no handler.
const UNKNOWN: &str = "unknown";
