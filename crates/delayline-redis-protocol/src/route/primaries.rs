//! What all primaries are asked at once.

use std::future::Future;
use std::sync::Arc;

use delayline_core::Error;
use tokio::task::JoinSet;

use crate::HostPort;
use crate::link::driver::Driver;

use super::directory::Failures;
use super::node::{Node, Nodes};

/// The failures of some of the primaries.
pub(super) struct Asked {
    failures: Failures,
    failed: usize,
    primaries: usize,
}

impl Asked {
    /// Asks all primaries at once, so that a silent one delays the result by one timeout. `take`
    /// gets their replies in the order of their addresses, and returns the failure of one, if any.
    pub(super) async fn all<D, T, F>(
        nodes: &Nodes<D>,
        ask: impl Fn(Arc<Node<D>>) -> F,
        mut take: impl FnMut(T) -> Result<(), Error>,
    ) -> Self
    where
        D: Driver,
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let mut asked = JoinSet::new();
        for (name, node) in nodes.owners() {
            let (name, reply) = (name.clone(), ask(Arc::clone(node)));
            asked.spawn(async move { (name, reply.await) });
        }
        let mut replies: Vec<(HostPort, T)> = asked.join_all().await;
        replies.sort_by(|(one, _), (other, _)| one.cmp(other));
        let mut outcome =
            Self { failures: Failures::default(), failed: 0, primaries: replies.len() };
        for (name, reply) in replies {
            if let Err(error) = take(reply) {
                outcome.failures.add(&name, error);
                outcome.failed += 1;
            }
        }
        outcome
    }

    /// Returns the error of the primaries that failed, if some did.
    ///
    /// # Errors
    ///
    /// All failed.
    pub(super) fn failure(self) -> Result<Option<Error>, Error> {
        if self.failed == 0 {
            return Ok(None);
        }
        let error = self.failures.into_error();
        if self.failed == self.primaries { Err(error) } else { Ok(Some(error)) }
    }
}
