//! Private `redis-server` processes for tests, benchmarks and `cargo xtask redis`.
//!
//! A [`Server`] lives in its own temporary directory and listens on a unix socket there. On request
//! it also listens on a TCP or TLS port of 127.0.0.1. Dropping it kills the process; a process that
//! dies without dropping it (a `static`, an abort, Ctrl-C) has its servers killed all the same.
//!
//! A machine without a server fails the tests: nothing here skips. The program is
//! `$REDIS_SERVER_BIN`, else `redis-server`, else `valkey-server` on the `PATH`.
//!
//! ```
//! use delayline_test_server::Server;
//!
//! let server = Server::start();
//! server.command(&["SET", "color", "blue"]);
//! server.restart(); // same socket, empty: nothing is kept without `append_only`
//! assert_eq!(server.command(&["EXISTS", "color"]), delayline_test_server::Reply::Int(0));
//! ```
//!
//! A [`Cluster`] and [`Sentinels`] are several of them.
//!
//! In a [`Network`], servers can be cut off from each other.
//!
//! [`proxy`] stands between a client and a server and loses requests and replies on demand.
//!
//! Unix only.

mod binary;
mod builder;
mod clock;
mod cluster;
mod error;
mod launch;
mod network;
mod process;
pub mod proxy;
mod sentinels;
mod server;
mod settings;
mod tls;
mod wait;
mod watchdog;

pub use binary::find_server_binary;
pub use builder::Builder;
pub use cluster::{Cluster, ClusterBuilder};
pub use error::StartError;
pub use network::Network;
/// What [`Server::command`] answers.
pub use redis::Value as Reply;
pub use sentinels::{Sentinels, SentinelsBuilder};
pub use server::Server;
pub use tls::{Certificate, foreign_ca_pem};
pub use wait::{until, until_blocking};
