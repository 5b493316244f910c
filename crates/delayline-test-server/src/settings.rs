//! What a server is to be like, for its launch.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::Network;
use crate::tls::{Certificate, Identity};

/// Where a server listens, besides its unix socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Listen {
    /// Nowhere.
    #[default]
    Unix,
    /// On a plain port.
    Tcp,
    /// On a TLS port.
    Tls(Certificate),
}

/// What a server is among others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Role {
    #[default]
    Alone,
    ClusterNode,
    Sentinel,
}

/// What a [`Builder`](crate::Builder) makes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) listen: Listen,
    /// Lines of the configuration file.
    pub(crate) directives: String,
    pub(crate) directory: Option<PathBuf>,
    pub(crate) role: Role,
    /// Where several servers trust one authority.
    pub(crate) identity: Option<Identity>,
    pub(crate) own_clock: bool,
    /// A program that becomes the server, and its arguments; empty if there is none.
    pub(crate) runner: Vec<OsString>,
    pub(crate) network: Option<Network>,
}
