//! What a server is to be like.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::PathBuf;

use crate::error::full_text;
use crate::settings::{Listen, Settings};
use crate::tls::Certificate;
use crate::{Network, Server, StartError};

/// Says what a server is to be like: [`Server::builder`].
///
/// Without calls: a unix socket only, no password, nothing kept on disk.
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until `start` or `try_start`"]
pub struct Builder {
    pub(crate) settings: Settings,
}

impl Server {
    /// Starts a server with a unix socket only, no password, nothing kept on disk.
    ///
    /// # Panics
    ///
    /// The server does not start; the message says why.
    #[must_use = "dropping a server ends it"]
    #[track_caller]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Says what a server is to be like, then starts it.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl Builder {
    /// Listens also on a TCP port of 127.0.0.1, which the kernel chooses.
    pub fn tcp(mut self) -> Self {
        self.settings.listen = Listen::Tcp;
        self
    }

    /// Listens also on a TLS port of 127.0.0.1 with a good certificate for `localhost`.
    ///
    /// Instead of a plain port; clients need no certificate.
    pub fn tls(self) -> Self {
        self.tls_with(Certificate::Valid)
    }

    /// The same with a chosen certificate, for tests of refusal.
    pub fn tls_with(mut self, certificate: Certificate) -> Self {
        self.settings.listen = Listen::Tls(certificate);
        self
    }

    /// The default user needs this password.
    pub fn password(mut self, password: &str) -> Self {
        let escaped = password.replace('\\', r"\\").replace('"', "\\\"");
        self.setting("requirepass", &format!("\"{escaped}\""));
        self
    }

    /// Adds or changes an ACL user, in the words of `ACL SETUSER`: `"alice on >secret ~* +@all"`.
    pub fn acl_user(mut self, rules: &str) -> Self {
        self.setting("user", rules);
        self
    }

    /// Sets a directive of `redis.conf`: `("maxmemory", "1mb")`. Arguments are separated by spaces.
    pub fn config(mut self, name: &str, value: &str) -> Self {
        self.setting(name, if value.is_empty() { "\"\"" } else { value });
        self
    }

    /// Keeps an append-only file, synced `"always"` or `"everysec"`: data survive
    /// [`Server::restart`] and [`Server::kill`].
    pub fn append_only(mut self, sync: &str) -> Self {
        self.setting("appendonly", "yes");
        self.setting("appendfsync", sync);
        self
    }

    /// Keeps its data files in this existing directory, which is left alone afterwards.
    pub fn dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.settings.directory = Some(directory.into());
        self
    }

    /// Gives the server its own wall clock, for [`Server::set_clock_step`]. Needs a C compiler,
    /// `cc`, and a server that is linked with the system's C library. Linux only.
    pub fn own_clock(mut self) -> Self {
        self.settings.own_clock = true;
        self
    }

    /// Starts the server through another program, such as `valgrind`: the program and its own
    /// arguments. It must become the server (`exec`), so that the process id is the same.
    pub fn runner(mut self, program_and_arguments: &[impl AsRef<OsStr>]) -> Self {
        self.settings.runner =
            program_and_arguments.iter().map(|part| part.as_ref().to_owned()).collect();
        self
    }

    /// Runs the server in a namespace of this network, with a TCP port on its own address. Only the
    /// other servers of the network reach it.
    pub fn network(mut self, network: &Network) -> Self {
        self.settings.network = Some(network.clone());
        self.tcp()
    }

    /// Starts the server and returns when it answers.
    ///
    /// # Panics
    ///
    /// Where [`try_start`](Self::try_start) returns an error: a test cannot continue without its
    /// server.
    #[must_use = "dropping a server ends it"]
    #[track_caller]
    #[expect(clippy::panic, reason = "documented: a test cannot go on without its server")]
    pub fn start(self) -> Server {
        self.try_start().unwrap_or_else(|error| panic!("{}", full_text(&error)))
    }

    /// Starts the server and returns when it answers.
    ///
    /// # Errors
    ///
    /// There is no server program, it ended at once (a wrong directive, say), or it stays silent.
    pub fn try_start(self) -> Result<Server, StartError> {
        Server::launch(&self.settings)
    }

    /// Appends one line. A line break would smuggle in a second directive: it becomes a space.
    pub(crate) fn setting(&mut self, name: &str, value: &str) {
        let value = value.replace(['\n', '\r'], " ");
        // Writing to a `String` cannot fail.
        let _ = writeln!(self.settings.directives, "{name} {value}");
    }
}
