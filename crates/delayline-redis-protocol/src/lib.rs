//! The parts that all Redis drivers of Delayline share: the scripts, the keys, the encoding of
//! operations and replies, the classification of errors, and the management of connections.
//!
//! A driver implements [`Driver`] and [`Connection`], which connect and send commands through its
//! library, and gets a [`DriverTransport`]. [`ScriptBackend`] is the queue over any [`Transport`].
//! `docs/wire.md` in the repository describes what is stored in Redis.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod acl;
mod backend;
mod classify;
mod commands;
mod connect_url;
mod decode;
mod driver_transport;
mod encode;
mod handshake;
mod host_port;
mod info;
mod keys;
pub mod layout;
mod link;
mod options;
mod permissions;
mod preflight;
mod record;
mod route;
mod runtime;
mod script;
mod slot;
mod socket_path;
mod stream;
#[cfg(feature = "tls")]
pub mod tls;
mod totals;
mod transport;
mod upgrade;
mod workers;

pub use acl::{AclRole, Denial, Inspection, inspect};
pub use backend::ScriptBackend;
pub use classify::{classify, is_no_script};
pub use connect_url::redacted;
pub use decode::{Removal, decode};
pub use driver_transport::DriverTransport;
pub use handshake::log_in;
pub use host_port::HostPort;
pub use info::Fields;
pub use keys::{KEY_NAMES, KEY_PREFIX, Keys};
pub use layout::SCHEMA_VERSION;
pub use link::MAX_CALLS_IN_FLIGHT;
pub use link::driver::{Connection, Driver, DriverTask, TCP_UPKEEP, TcpUpkeep};
pub use options::{Address, ConnectOptions, Resp, Topology};
pub use route::{SentinelReport, SentinelView, ServerReport, Survey, TopologyKind};
pub use runtime::runtime;
pub use script::{Script, all_scripts};
pub use socket_path::SocketPath;
pub use stream::{Dialer, Stream, TlsRefusal, reachable_address};
pub use transport::{CallError, Fence, QueueList, ScriptCall, ScriptName, Transport, Value};
pub use upgrade::{Conversion, Upgrade, conversions};
pub use workers::{WorkerList, WorkerProcess};
