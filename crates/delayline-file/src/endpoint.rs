//! The socket in a directory, through which commands in other processes reach the queues.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use delayline_core::{At, Backend, Error, ErrorKind, Held, Op, QueueName};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::DirectoryStatus;
use crate::backend::FileBackend;
use crate::socket::{Address, SOCKET};
use crate::wire::{self, Answer, Ask, Failure, Hello, VERSION};

/// The queues that requests reach.
pub(crate) trait Reached: Send + Sync {
    /// The names of all queues that are stored.
    fn names(&self) -> Vec<QueueName>;

    /// The queue of this name.
    fn find(&self, name: QueueName) -> Result<FileBackend, Error>;

    /// The state of the directory.
    fn status(&self) -> DirectoryStatus;
}

/// Finds the queues for a request. `None` once their directory is closing.
pub(crate) type Find = Arc<dyn Fn() -> Option<Box<dyn Reached>> + Send + Sync>;

/// Returns a description of this process.
pub(crate) type About = Arc<dyn Fn() -> String + Send + Sync>;

/// The task that accepts connections. Dropping it ends all of them, and removes the socket.
#[derive(Debug)]
pub(crate) struct Endpoint {
    socket: PathBuf,
    task: JoinHandle<()>,
}

impl Endpoint {
    /// Binds the socket, and gives it its name after a delay. Only the user of this process can
    /// connect to it.
    pub(crate) fn bind(
        directory: &Path,
        after: Duration,
        find: Find,
        about: About,
    ) -> io::Result<Self> {
        let socket = directory.join(SOCKET);
        // Until it is named, no process can connect that may not.
        let unnamed = directory.join(UNNAMED);
        for left in [&socket, &unnamed] {
            // One of a process that was killed: the lock is ours.
            match fs::remove_file(left) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        let listener = UnixListener::bind(&Address::of(directory, UNNAMED)?.path)?;
        fs::set_permissions(&unnamed, Permissions::from_mode(0o600))?;
        let name = socket.clone();
        let task = tokio::spawn(async move {
            tokio::time::sleep(after).await;
            match fs::rename(&unnamed, &name) {
                Ok(()) => accept(listener, find, about).await,
                // The directory is being closed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    let path = name.display();
                    tracing::warn!(%error, %path, "other processes cannot reach the queues");
                }
            }
        });
        Ok(Self { socket, task })
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.task.abort();
        // First the name without which it gets no other one.
        let _ = fs::remove_file(self.socket.with_file_name(UNNAMED));
        let _ = fs::remove_file(&self.socket);
    }
}

async fn accept(listener: UnixListener, find: Find, about: About) {
    // Dropped with this task.
    let mut connections = JoinSet::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                while connections.try_join_next().is_some() {}
                if connections.len() < MAX_CONNECTIONS {
                    connections.spawn(serve(stream, Arc::clone(&find), Arc::clone(&about)));
                }
            }
            // Too many files are open: they close.
            Err(error) => {
                tracing::warn!(%error, "a connection to the directory was not accepted");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn serve(mut stream: UnixStream, find: Find, about: About) {
    let result = async {
        wire::write(&mut stream, &Hello { version: VERSION }).await?;
        while let Some(ask) = wire::read(&mut stream).await? {
            let Some(reached) = find() else { break };
            let answer = answer(reached, ask, &about).await;
            wire::write(&mut stream, &answer).await?;
        }
        io::Result::Ok(())
    };
    if let Err(error) = result.await {
        tracing::debug!(%error, "a connection to the directory has failed");
    }
}

fn held(result: Result<(bool, Held), Error>) -> Answer {
    match result {
        Ok((existed, held)) => Answer::Held { existed, held },
        Err(error) => Answer::Failed(Failure::from(&error)),
    }
}

async fn answer(reached: Box<dyn Reached>, ask: Ask, about: &About) -> Answer {
    match ask {
        Ask::Queues => {
            let names = reached.names();
            Answer::Queues(names.into_iter().map(|name| name.as_str().to_owned()).collect())
        }
        Ask::Status => Answer::Status(Box::new(reached.status())),
        Ask::About => Answer::About(about()),
        Ask::Delete(queue) => {
            let queue = find(&*reached, &queue);
            drop(reached);
            let removed = async move { queue?.remove_if_empty().await };
            held(removed.await)
        }
        Ask::Held(queue) => held(find(&*reached, &queue).and_then(|queue| queue.held())),
        Ask::Apply { queue, op } => {
            let queue = find(&*reached, &queue);
            drop(reached);
            let applied = async move { apply(&queue?, &op).await };
            match applied.await {
                Ok(applied) => Answer::Applied(Box::new(applied)),
                Err(error) => Answer::Failed(Failure::from(&error)),
            }
        }
    }
}

fn find(reached: &dyn Reached, name: &str) -> Result<FileBackend, Error> {
    reached.find(QueueName::from_stored(name)?)
}

/// Workers must be in the process of the queues, which alone wakes them.
async fn apply(queue: &FileBackend, op: &Op) -> Result<delayline_core::Applied, Error> {
    match op {
        // A claim for no messages only reclaims expired leases.
        Op::Claim(claim) if claim.max == 0 => {}
        Op::Claim(_) | Op::Extend(_) | Op::Settle(_) | Op::HandOff(_) | Op::Relay(_) => {
            return Err(Error::new(ErrorKind::Unsupported(
                "working on a queue of another process",
            )));
        }
        _ => {}
    }
    queue.apply(At::Server, op).await
}

const UNNAMED: &str = "delayline.sock.new";

/// Commands are few, and each has one connection.
const MAX_CONNECTIONS: usize = 100;

const PAUSE: Duration = Duration::from_millis(100);
