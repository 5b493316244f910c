//! Servers of the topology.

use std::sync::Arc;

use delayline_core::Error;
use tokio::sync::Notify;

use crate::link::Link;
use crate::link::connection_name::ConnectionName;
use crate::link::driver::Driver;
use crate::link::suspicion::Suspicion;
use crate::{Address, ConnectOptions, HostPort};

use super::map::Map;

/// A server of the topology.
pub(crate) struct Node<D: Driver> {
    pub(crate) link: Link<D>,
    /// Raised when a call has had no reply for a while.
    pub(crate) suspicion: Suspicion,
}

/// The servers by the slots that they serve.
pub(crate) type Nodes<D> = Map<Arc<Node<D>>>;

/// Connects to every node with the same login, and over TLS if the URL says so.
pub(crate) struct NodeConnector {
    options: ConnectOptions,
    is_encrypted: bool,
    is_sharded: bool,
    /// The name of the connections of calls.
    name: ConnectionName,
    /// Notified when a node is slow to reply.
    sign: Arc<Notify>,
}

impl NodeConnector {
    pub(crate) fn new(options: ConnectOptions, is_encrypted: bool, is_sharded: bool) -> Self {
        let (name, sign) = Default::default();
        Self { options, is_encrypted, is_sharded, name, sign }
    }

    /// Sets the name of the connections of calls.
    pub(crate) fn naming(self, name: &ConnectionName) -> Self {
        Self { name: name.clone(), ..self }
    }

    /// Returns the notification of every sign that the topology may have changed.
    pub(crate) const fn sign(&self) -> &Arc<Notify> {
        &self.sign
    }

    /// Returns the known node of this name, or a new one, which connects on first use.
    ///
    /// # Errors
    ///
    /// If the driver does not support an option.
    pub(crate) fn node<D: Driver>(
        &self,
        name: &HostPort,
        known: &Nodes<D>,
    ) -> Result<Arc<Node<D>>, Error> {
        if let Some((_, node)) = known.nodes().iter().find(|(known, _)| known == name) {
            return Ok(Arc::clone(node));
        }
        let HostPort { host, port } = self.options.address_map.get(name).unwrap_or(name).clone();
        let address = if self.is_encrypted {
            Address::Tls { host, port }
        } else {
            Address::Tcp { host, port }
        };
        let suspicion = Suspicion::new(&self.sign);
        let link = Link::of(&address, &self.options, &self.name, Some(&suspicion))?;
        let link = if self.is_sharded { link.sharded() } else { link };
        Ok(Arc::new(Node { link, suspicion }))
    }
}
