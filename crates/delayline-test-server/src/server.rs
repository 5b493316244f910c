//! A running server.

use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use redis::{RedisError, ToRedisArgs};
use rustix::process::Signal;
use url::Url;
use url::form_urlencoded::Serializer;

use crate::error::full_text;
use crate::launch::{Launch, info_field};
use crate::network::Place;
use crate::process::Process;
use crate::settings::{Listen, Settings};
use crate::{Reply, StartError};

/// A private server process. Dropping it kills the process and removes its directory.
///
/// Every method works from any thread. Methods that need a living server panic without one: a test
/// cannot continue then.
pub struct Server {
    launch: Launch,
    process: Mutex<Process>,
}

impl Server {
    pub(crate) fn launch(settings: &Settings) -> Result<Self, StartError> {
        let mut launch = Launch::prepare(settings)?;
        let process = Mutex::new(launch.first_start()?);
        Ok(Self { launch, process })
    }

    /// Where to connect: `unix:PATH`, `redis://127.0.0.1:PORT` or `rediss://localhost:PORT`,
    /// without user and password.
    #[must_use]
    pub fn url(&self) -> String {
        match self.launch.listen {
            Listen::Unix => format!("unix:{}", self.launch.socket().display()),
            Listen::Tcp => format!("redis://{}:{}", self.launch.address(), self.launch.port),
            Listen::Tls(_) => format!("rediss://localhost:{}", self.launch.port),
        }
    }

    /// [`url`](Self::url) with a user (empty for the default user) and a password, percent-encoded.
    #[must_use]
    #[expect(clippy::expect_used, reason = "our own URLs are well formed")]
    pub fn url_with_login(&self, user: &str, password: &str) -> String {
        if self.launch.listen == Listen::Unix {
            let mut query = Serializer::new(String::new());
            if !user.is_empty() {
                query.append_pair("user", user);
            }
            query.append_pair("password", password);
            // Only forms read `+` as a space, and this is a URL.
            return format!("{}?{}", self.url(), query.finish().replace('+', "%20"));
        }
        let mut url = Url::parse(&self.url()).expect("our URL is well formed");
        url.set_username(user).expect("our URL has a host");
        url.set_password(Some(password)).expect("our URL has a host");
        url.into()
    }

    /// The unix socket, which every server has.
    #[must_use]
    pub fn unix_path(&self) -> PathBuf {
        self.launch.socket()
    }

    /// The TCP or TLS port.
    ///
    /// # Panics
    ///
    /// The server listens on a unix socket only.
    #[must_use]
    #[track_caller]
    pub fn port(&self) -> u16 {
        assert!(self.launch.port != 0, "the server was built without `tcp` or `tls`");
        self.launch.port
    }

    /// Address and port: 127.0.0.1, or what the server has in its [`Network`](crate::Network).
    ///
    /// # Panics
    ///
    /// The server listens on a unix socket only.
    #[must_use]
    #[track_caller]
    pub fn address(&self) -> SocketAddrV4 {
        SocketAddrV4::new(self.launch.address(), self.port())
    }

    /// The authority that signed the server's certificate, as PEM text.
    ///
    /// # Panics
    ///
    /// The server has no TLS port.
    #[must_use]
    #[track_caller]
    #[expect(clippy::expect_used, reason = "documented")]
    pub fn ca_pem(&self) -> &str {
        self.launch.ca_pem.as_deref().expect("the server was built without `tls`")
    }

    /// The file that holds [`ca_pem`](Self::ca_pem), for command lines.
    ///
    /// # Panics
    ///
    /// The server has no TLS port.
    #[must_use]
    #[track_caller]
    pub fn ca_path(&self) -> PathBuf {
        assert!(self.launch.ca_pem.is_some(), "the server was built without `tls`");
        self.launch.ca_path()
    }

    /// Where it keeps its data.
    #[must_use]
    pub fn data_dir(&self) -> &Path {
        self.launch.data()
    }

    /// The process id. Another one after each [`restart`](Self::restart).
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process().pid()
    }

    /// The last lines that the server wrote.
    #[must_use]
    pub fn log_tail(&self) -> String {
        self.launch.log_tail()
    }

    /// Runs one command over a new connection.
    ///
    /// As an administrator whom the tests' passwords and ACL users don't touch, and over the unix
    /// socket, so that a [`proxy`](crate::proxy) doesn't either.
    ///
    /// # Panics
    ///
    /// The server is not there, or answers with an error.
    #[track_caller]
    #[expect(clippy::panic, reason = "documented: a test cannot go on then")]
    pub fn command<A: ToRedisArgs>(&self, args: &[A]) -> Reply {
        self.try_command(args).unwrap_or_else(|error| panic!("{}", full_text(&error)))
    }

    /// The same for arguments that are not all text.
    ///
    /// # Panics
    ///
    /// The server is not there, or answers with an error.
    #[track_caller]
    pub fn binary_command(&self, args: &[&[u8]]) -> Reply {
        self.command(args)
    }

    /// [`command`](Self::command) for a test that expects an error.
    ///
    /// # Errors
    ///
    /// The server is not there, or answers with an error.
    pub fn try_command<A: ToRedisArgs>(&self, args: &[A]) -> Result<Reply, RedisError> {
        let mut command = redis::Cmd::new();
        for arg in args {
            command.arg(arg);
        }
        command.query(&mut self.launch.connect()?)
    }

    /// Runs many commands at once over one connection, and answers each.
    ///
    /// # Panics
    ///
    /// The server is not there, or answers one of them with an error.
    #[track_caller]
    #[expect(clippy::panic, reason = "documented: a test cannot go on then")]
    pub fn commands(&self, commands: &[Vec<Vec<u8>>]) -> Vec<Reply> {
        if commands.is_empty() {
            return Vec::new();
        }
        let mut pipe = redis::pipe();
        for command in commands {
            let added = pipe.add_command(redis::Cmd::new());
            command.iter().for_each(|arg| {
                added.arg(arg);
            });
        }
        let run = || pipe.query(&mut self.launch.connect()?);
        run().unwrap_or_else(|error: RedisError| panic!("{}", full_text(&error)))
    }

    /// A connection of the administrator's, for who must not depend on getting a new one.
    ///
    /// # Errors
    ///
    /// The server is not there, or takes no more clients.
    pub fn admin(&self) -> Result<redis::Connection, RedisError> {
        self.launch.connect()
    }

    /// One number or word of `INFO`: `info("stats", "total_commands_processed")`.
    ///
    /// # Panics
    ///
    /// The server is not there, or has no such field.
    #[must_use]
    #[track_caller]
    #[expect(clippy::panic, reason = "documented: a test cannot go on then")]
    pub fn info(&self, section: &str, field: &str) -> String {
        let reply = self.command(&["INFO", section]);
        let text: String = redis::from_redis_value(reply).unwrap_or_default();
        let value = info_field(&text, field);
        value.unwrap_or_else(|| panic!("INFO {section} has no field {field}:\n{text}")).to_owned()
    }

    /// How many replicas are in step with the server, by its `ROLE`. None of a replica.
    ///
    /// # Panics
    ///
    /// The server is not there.
    #[must_use]
    #[track_caller]
    pub fn online_replicas(&self) -> usize {
        type OfPrimary = (String, i64, Vec<(String, String, String)>);
        redis::from_redis_value::<OfPrimary>(self.command(&["ROLE"])).map_or(0, |it| it.2.len())
    }

    /// Kills the process (SIGKILL) and waits for its end. Nothing to do if it has ended.
    pub fn kill(&self) {
        self.process().kill();
    }

    /// Asks the process to end (SIGTERM) and waits; kills it if it takes more than ten seconds.
    pub fn stop_gracefully(&self) {
        self.process().stop();
    }

    /// Freezes the process (SIGSTOP): connections stay open, nothing is answered, the kernel still
    /// accepts connections. Nothing to do if it has ended.
    pub fn pause(&self) {
        self.process().signal(Signal::STOP);
    }

    /// Resumes a frozen process.
    pub fn resume(&self) {
        self.process().signal(Signal::CONT);
    }

    /// Sets the server's wall clock this many milliseconds ahead of the machine's, or behind it. At
    /// first both are the same.
    ///
    /// # Panics
    ///
    /// The server was built without [`own_clock`](crate::Builder::own_clock).
    #[track_caller]
    #[expect(clippy::panic, reason = "documented: a test cannot go on then")]
    pub fn set_clock_step(&self, ms: i64) {
        let Some(clock) = &self.launch.clock else {
            panic!("the server was built without a clock")
        };
        if let Err(error) = clock.set_step(ms) {
            panic!("cannot set the server's clock: {error}");
        }
    }

    /// Stops the server if it runs, and starts it again on the same socket, port and directory.
    ///
    /// Data survive only with [`append_only`](crate::Builder::append_only); what `CONFIG SET`
    /// changed is forgotten. For a crash call [`kill`](Self::kill) first.
    ///
    /// # Panics
    ///
    /// It does not start.
    #[track_caller]
    #[expect(clippy::panic, reason = "documented: a test cannot go on then")]
    pub fn restart(&self) {
        let mut process = self.process();
        process.stop();
        match self.launch.start_again() {
            Ok(started) => *process = started,
            Err(error) => panic!("{}", full_text(&error)),
        }
    }

    pub(crate) const fn place(&self) -> Option<&Place> {
        self.launch.place.as_ref()
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        // A panicking test leaves the process as it was.
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
