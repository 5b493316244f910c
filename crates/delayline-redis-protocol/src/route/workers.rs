//! The processes with workers, as the primaries list them: for operators.

use std::sync::Arc;

use delayline_core::Error;

use crate::link::driver::Driver;
use crate::workers::Listed;
use crate::{CallError, WorkerList};

use super::node::{Node, Nodes};
use super::primaries::Asked;

/// The processes that are connected to any primary. A silent primary hides the processes that
/// are connected to no other.
///
/// # Errors
///
/// No primary has listed its connections.
pub(super) async fn list_all<D: Driver>(nodes: &Nodes<D>) -> Result<WorkerList, Error> {
    let clients = |node: Arc<Node<D>>| async move { node.link.clients().await };
    let mut listed = Listed::default();
    let asked = Asked::all(nodes, clients, |reply| {
        let (text, database) = reply.map_err(CallError::into_error)?;
        listed.read(&text, database);
        Ok(())
    });
    let failure = asked.await.failure()?;
    Ok(listed.into_list(failure))
}
