//! Signals that ask the process to end.

use std::future::{Future, pending};
use std::io;

use tokio::signal;

/// Returns a future that completes at the first Ctrl-C or, on Unix, `SIGTERM`: the signal of
/// Docker, Kubernetes and systemd. Pass it to [`Worker::run_until`](crate::Worker::run_until), and
/// to other tasks of the process.
///
/// ```no_run
/// # use delayline::{Job, Queue, Worker};
/// # async fn example(orders: Queue<String>) -> Result<(), delayline::Error> {
/// let worker = Worker::builder(orders).build()?;
/// let handler = async |_: Job<String>| Ok::<_, std::io::Error>(());
/// worker.run_until(delayline::shutdown_signal(), handler).await;
/// # Ok(())
/// # }
/// ```
///
/// Without it, such a signal ends the process at once: messages stay leased until their leases
/// expire, and each counts as a crash. Configure the platform to wait at least 10 s
/// longer than [`WorkerBuilder::stop_grace`](crate::worker::WorkerBuilder::stop_grace) before it
/// kills the process.
///
/// On Unix, signals count from this call on, not from the first poll. All futures that exist at the
/// time of a signal complete. If the operating system refuses to register a signal, the error is
/// logged, and that signal still ends the process.
///
/// # Cancel safety
///
/// Dropping the future loses no signal for other futures. But from the first call on, these signals
/// no longer end the process, even if all futures are dropped.
///
/// # Panics
///
/// Outside of a Tokio runtime, or in one without I/O.
#[cfg_attr(docsrs, doc(cfg(feature = "signal")))]
pub fn shutdown_signal() -> impl Future<Output = ()> + Send + 'static {
    let (mut interrupt, mut terminate) = (Listener::interrupt(), Listener::terminate());
    async move {
        tokio::select! {
            () = interrupt.received() => {}
            () = terminate.received() => {}
        }
    }
}

/// Receives one kind of signal, or nothing if it could not be registered.
#[cfg(unix)]
struct Listener(Option<signal::unix::Signal>);

#[cfg(unix)]
impl Listener {
    fn interrupt() -> Self {
        Self::of(signal::unix::SignalKind::interrupt())
    }

    fn terminate() -> Self {
        Self::of(signal::unix::SignalKind::terminate())
    }

    fn of(kind: signal::unix::SignalKind) -> Self {
        Self(registered(signal::unix::signal(kind)))
    }

    async fn received(&mut self) {
        if let Some(signal) = &mut self.0
            && signal.recv().await.is_some()
        {
            return;
        }
        pending::<()>().await;
    }
}

/// Receives Ctrl-C. There is no other signal.
#[cfg(not(unix))]
enum Listener {
    Interrupt,
    Terminate,
}

#[cfg(not(unix))]
impl Listener {
    fn interrupt() -> Self {
        Self::Interrupt
    }

    fn terminate() -> Self {
        Self::Terminate
    }

    async fn received(&mut self) {
        if matches!(self, Self::Interrupt) && registered(signal::ctrl_c().await).is_some() {
            return;
        }
        pending::<()>().await;
    }
}

fn registered<S>(listener: io::Result<S>) -> Option<S> {
    listener.inspect_err(|error| tracing::error!(%error, "a signal cannot be received")).ok()
}
