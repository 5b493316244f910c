//! The queues of a directory that another process has opened.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use delayline_core::{
    Applied, At, Backend, Durability, Error, ErrorKind, Held, Op, QueueName, Wakeup,
};
use tokio::net::UnixStream;
use tokio::runtime::Handle;
use tokio::sync::Mutex;

use crate::DirectoryStatus;
use crate::backend::check_durability;
use crate::socket::{Address, SOCKET};
use crate::wire::{self, Answer, Ask, Hello, VERSION};

/// A connection to the process that has opened a directory and [shares](crate::Directory::share)
/// it. Clones share the connection; calls use it one after the other.
///
/// It is for commands: look at queues, send, pause, redrive. Workers and relays must be in the
/// process that has opened the directory: their operations fail with [`ErrorKind::Unsupported`].
#[derive(Clone)]
pub struct Beside(Arc<Inner>);

struct Inner {
    path: PathBuf,
    /// `None` while a call uses it, and after one has failed or was dropped.
    stream: Mutex<Option<UnixStream>>,
}

impl Beside {
    /// Connects to the process that has opened the directory.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unreachable`] if no process of this user shares the directory, and
    /// [`ErrorKind::Unsupported`] if it has another version of this library. Only the first can be
    /// retried.
    pub async fn connect(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref().to_owned();
        let stream = dial(&path).await?;
        Ok(Self(Arc::new(Inner { path, stream: Mutex::new(Some(stream)) })))
    }

    /// Returns the names of all queues that are stored, in order.
    ///
    /// # Cancel safety
    ///
    /// This call changes nothing; its future can be dropped.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unreachable`] or [`ErrorKind::ConnectionLost`] if the other process has ended.
    pub async fn queues(&self) -> Result<Vec<QueueName>, Error> {
        match self.call(&Ask::Queues).await? {
            Answer::Queues(names) => {
                names.iter().map(|name| Ok(QueueName::from_stored(name)?)).collect()
            }
            other => Err(unexpected(other)),
        }
    }

    /// Returns the state of the directory.
    ///
    /// # Cancel safety
    ///
    /// This call changes nothing; its future can be dropped.
    ///
    /// # Errors
    ///
    /// Like [`queues`](Self::queues).
    pub async fn status(&self) -> Result<DirectoryStatus, Error> {
        match self.call(&Ask::Status).await? {
            Answer::Status(status) => Ok(*status),
            other => Err(unexpected(other)),
        }
    }

    /// Returns the other process's description of itself: see
    /// [`Directory::share`](crate::Directory::share).
    ///
    /// # Cancel safety
    ///
    /// This call changes nothing; its future can be dropped.
    ///
    /// # Errors
    ///
    /// Like [`queues`](Self::queues).
    pub async fn about(&self) -> Result<String, Error> {
        match self.call(&Ask::About).await? {
            Answer::About(about) => Ok(about),
            other => Err(unexpected(other)),
        }
    }

    /// Like [`Directory::delete_if_empty`](crate::Directory::delete_if_empty).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the queue may have been removed. It is safe to call it again.
    ///
    /// # Errors
    ///
    /// Like [`queues`](Self::queues), and what the other process meets.
    pub async fn delete_if_empty(&self, name: &QueueName) -> Result<(bool, Held), Error> {
        self.contents(&Ask::Delete(name.as_str().to_owned())).await
    }

    /// Like [`Directory::held`](crate::Directory::held).
    ///
    /// # Errors
    ///
    /// Like [`queues`](Self::queues), and what the other process meets.
    pub async fn held(&self, name: &QueueName) -> Result<(bool, Held), Error> {
        self.contents(&Ask::Held(name.as_str().to_owned())).await
    }

    async fn contents(&self, ask: &Ask) -> Result<(bool, Held), Error> {
        match self.call(ask).await? {
            Answer::Held { existed, held } => Ok((existed, held)),
            other => Err(unexpected(other)),
        }
    }

    /// Returns the queue of this name.
    #[must_use]
    pub fn queue(&self, name: QueueName) -> BesideBackend {
        BesideBackend { beside: self.clone(), name }
    }

    /// Returns the path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    async fn call(&self, ask: &Ask) -> Result<Answer, Error> {
        if Handle::try_current().is_err() {
            return Err(Error::new(ErrorKind::Unsupported("a call outside of a tokio runtime")));
        }
        let mut kept = self.0.stream.lock().await;
        // Not put back if this future is dropped: the next reply would be that of another call.
        let mut stream = match kept.take() {
            Some(stream) => stream,
            None => dial(&self.0.path).await?,
        };
        let exchange = async {
            wire::write(&mut stream, ask).await?;
            wire::read(&mut stream).await
        };
        let failed = |detail: &str| Error::with_detail(ErrorKind::ConnectionLost, detail);
        let Ok(exchanged) = tokio::time::timeout(MOST_WAIT, exchange).await else {
            let detail = format!(
                "the process that has opened {} has not replied within {} s",
                self.0.path.display(),
                MOST_WAIT.as_secs()
            );
            return Err(Error::with_detail(ErrorKind::Timeout, detail));
        };
        match exchanged {
            Ok(Some(answer)) => {
                *kept = Some(stream);
                Ok(answer)
            }
            Ok(None) => Err(failed("the process that has opened the directory has closed it")),
            Err(error) => Err(failed(&error.to_string())),
        }
    }
}

async fn dial(path: &Path) -> Result<UnixStream, Error> {
    let unreachable = |error: io::Error| {
        let detail = format!("{}: {error}", path.join(SOCKET).display());
        Error::with_source(ErrorKind::Unreachable, detail, error)
    };
    let greeted = async {
        let address = Address::of(path, SOCKET)?;
        let mut stream = UnixStream::connect(&address.path).await?;
        let hello: Option<Hello> = wire::read(&mut stream).await?;
        io::Result::Ok((stream, hello))
    };
    let (stream, hello) = match tokio::time::timeout(MOST_GREETING, greeted).await {
        Ok(greeted) => greeted.map_err(unreachable)?,
        Err(_) => return Err(unreachable(io::ErrorKind::TimedOut.into())),
    };
    match hello {
        Some(Hello { version: VERSION }) => Ok(stream),
        Some(Hello { version }) => {
            let detail = format!(
                "the process that has opened {} has version {version} of the socket's protocol, and \
                 this one has {VERSION}: use the same version",
                path.display()
            );
            Err(Error::with_detail(ErrorKind::Unsupported("the other process"), detail))
        }
        None => Err(unreachable(io::ErrorKind::UnexpectedEof.into())),
    }
}

/// How long a process may take to reply: longer than any disk that works.
const MOST_WAIT: Duration = Duration::from_secs(60);

/// How long it may take to greet.
const MOST_GREETING: Duration = Duration::from_secs(5);

fn unexpected(answer: Answer) -> Error {
    match answer {
        Answer::Failed(failure) => failure.into(),
        _ => Error::with_detail(ErrorKind::Protocol, "the reply belongs to another request"),
    }
}

impl fmt::Debug for Beside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Beside").field("path", &self.0.path).finish_non_exhaustive()
    }
}

/// A queue of a directory that another process has opened: see [`Beside`].
#[derive(Clone, Debug)]
pub struct BesideBackend {
    beside: Beside,
    name: QueueName,
}

/// The clock is that of the process that has opened the directory; [`At::Fixed`] is refused with
/// [`ErrorKind::Unsupported`], and so are operations of workers and relays. If that process ends
/// during a call, the call fails with [`ErrorKind::ConnectionLost`], and can be repeated.
#[async_trait]
impl Backend for BesideBackend {
    async fn apply(&self, at: At, op: &Op) -> Result<Applied, Error> {
        op.validate()?;
        if at != At::Server {
            return Err(Error::new(ErrorKind::Unsupported("an instant of the caller")));
        }
        let ask = Ask::Apply { queue: self.name.as_str().to_owned(), op: op.clone() };
        match self.beside.call(&ask).await? {
            Answer::Applied(applied) => Ok(*applied),
            other => Err(unexpected(other)),
        }
    }

    fn queue_name(&self) -> Option<&QueueName> {
        Some(&self.name)
    }

    async fn apply_durably(
        &self,
        at: At,
        op: &Op,
        durability: Durability,
    ) -> Result<Applied, Error> {
        check_durability(durability)?;
        self.apply(at, op).await
    }
}

#[async_trait]
impl Wakeup for BesideBackend {
    /// No hints come through the socket.
    async fn wait(&self, timeout: Duration) -> Result<bool, Error> {
        tokio::time::sleep(timeout).await;
        Ok(false)
    }

    /// An enqueue wakes the workers without a hint.
    async fn ring(&self) -> Result<(), Error> {
        Ok(())
    }
}
