//! Prepares a server's directory and starts its process: once, and again at each restart.

use std::ffi::OsString;
use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read, Seek, SeekFrom};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use redis::{ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo, RedisError, RedisResult};
use tempfile::TempDir;

use crate::clock::Clock;
use crate::network::Place;
use crate::process::Process;
use crate::settings::{Listen, Role, Settings};
use crate::tls::Identity;
use crate::{Network, StartError, find_server_binary};

/// All that stays the same from one start of a server to the next.
pub(crate) struct Launch {
    binary: PathBuf,
    /// What becomes the server, and its arguments; empty if there is nothing.
    runner: Vec<OsString>,
    /// `None` on the machine's own network.
    pub(crate) place: Option<Place>,
    /// Socket, configuration, log, certificates; data too, unless the builder says where.
    home: TempDir,
    data: PathBuf,
    directives: String,
    pub(crate) listen: Listen,
    role: Role,
    /// The TCP or TLS port, 0 without one.
    pub(crate) port: u16,
    pub(crate) ca_pem: Option<String>,
    pub(crate) clock: Option<Clock>,
    admin_password: String,
}

impl Launch {
    /// Makes the directory and what does not change in it.
    pub(crate) fn prepare(settings: &Settings) -> Result<Self, StartError> {
        let binary = find_server_binary()?;
        let home = home().map_err(StartError::io("make a temporary directory"))?;
        let data = settings.directory.clone().unwrap_or_else(|| home.path().to_owned());
        let ca_pem = match settings.listen {
            Listen::Unix | Listen::Tcp => None,
            Listen::Tls(certificate) => {
                let identity = match &settings.identity {
                    Some(identity) => identity.clone(),
                    None => Identity::generate(certificate)?,
                };
                let write = |name, text: &str| {
                    write_private(&home.path().join(name), text)
                        .map_err(StartError::io("write the certificates"))
                };
                write(CA, &identity.ca)?;
                write(CERT, &identity.cert)?;
                write(KEY, &identity.key)?;
                Some(identity.ca)
            }
        };
        let clock = settings.own_clock.then(|| Clock::make(home.path())).transpose()?;
        // A local test server holds nothing worth guessing 64 random bits for.
        let admin_password = format!("{:016x}", RandomState::new().build_hasher().finish());
        let place = settings.network.as_ref().map(Network::add).transpose();
        let place = place.map_err(StartError::io("create a network namespace"))?;
        Ok(Self {
            binary,
            runner: settings.runner.clone(),
            place,
            home,
            data,
            directives: settings.directives.clone(),
            listen: settings.listen,
            role: settings.role,
            port: 0,
            ca_pem,
            clock,
            admin_password,
        })
    }

    /// Starts for the first time: chooses a port, and another one if it has been taken meanwhile.
    pub(crate) fn first_start(&mut self) -> Result<Process, StartError> {
        for _ in 1..PORT_ATTEMPTS {
            self.choose_port()?;
            match self.start() {
                Err(error) if port_taken(&error) => {}
                result => return result,
            }
        }
        self.choose_port()?;
        self.start()
    }

    /// A later start, on the same port. An outgoing connection of some other program may have it
    /// for a moment: waits for that to end.
    pub(crate) fn start_again(&self) -> Result<Process, StartError> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            match self.start() {
                Err(error) if port_taken(&error) && Instant::now() < deadline => {
                    thread::sleep(POLL);
                }
                result => return result,
            }
        }
    }

    /// The unix socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.home.path().join(SOCKET)
    }

    /// The address of its TCP or TLS port.
    pub(crate) fn address(&self) -> Ipv4Addr {
        self.place.as_ref().map_or(Ipv4Addr::LOCALHOST, Place::address)
    }

    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    /// The authority's certificate, if there is one.
    pub(crate) fn ca_path(&self) -> PathBuf {
        self.home.path().join(CA)
    }

    /// The last lines that the server wrote.
    pub(crate) fn log_tail(&self) -> String {
        tail(&self.home.path().join("server.log"))
            .unwrap_or_else(|error| format!("(no log: {error})"))
    }

    /// A fresh connection of the administrator that every server has, so that tests may change
    /// passwords and take away rights without locking themselves out.
    pub(crate) fn connect(&self) -> Result<redis::Connection, RedisError> {
        let settings = RedisConnectionInfo::default()
            .set_username(ADMIN)
            .set_password(&self.admin_password)
            .set_skip_set_lib_name();
        let info = ConnectionAddr::Unix(self.socket())
            .into_connection_info()?
            .set_redis_settings(settings);
        let connection = redis::Client::open(info)?.get_connection_with_timeout(COMMAND_TIMEOUT)?;
        connection.set_read_timeout(Some(COMMAND_TIMEOUT))?;
        connection.set_write_timeout(Some(COMMAND_TIMEOUT))?;
        Ok(connection)
    }

    fn choose_port(&mut self) -> Result<(), StartError> {
        let free = |port| {
            TcpListener::bind((Ipv4Addr::LOCALHOST, port))
                .and_then(|listener| listener.local_addr())
                .map(|address| address.port())
        };
        if self.listen == Listen::Unix {
            return Ok(());
        }
        if let Some(place) = &self.place {
            self.port = place.port();
            return Ok(());
        }
        loop {
            self.port = free(0).map_err(StartError::io("find a free port"))?;
            let has_bus = || self.port.checked_add(BUS_OFFSET).is_some_and(|bus| free(bus).is_ok());
            if self.role != Role::ClusterNode || has_bus() {
                return Ok(());
            }
        }
    }

    fn start(&self) -> Result<Process, StartError> {
        // A file, not arguments: everybody can read the arguments of a process.
        write_private(&self.home.path().join("redis.conf"), &self.config_text())
            .map_err(StartError::io("write the server's configuration"))?;
        let environment = self.clock.as_ref().map(Clock::environment);
        let environment = environment.as_ref().map_or(&[][..], |pairs| &pairs[..]);
        let arguments: &[&str] = if self.role == Role::Sentinel { &["--sentinel"] } else { &[] };
        let mut command = self.command();
        command.arg("redis.conf").args(arguments);
        let mut process = Process::spawn(command, self.home.path(), environment)?;
        self.await_ready(&mut process)?;
        Ok(process)
    }

    /// The server program, or a program that executes it.
    fn command(&self) -> Command {
        let place = self
            .place
            .iter()
            .flat_map(|place| ["ip", "netns", "exec", &place.namespace()].map(OsString::from));
        let binary = self.binary.clone().into_os_string();
        let mut words = place.chain(self.runner.iter().cloned()).chain([binary]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words);
        command
    }

    /// Waits until the server answers. It is started by us and says nothing when it is ready, so
    /// asking again and again is all there is.
    fn await_ready(&self, process: &mut Process) -> Result<(), StartError> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            // Before the question, so that an answer belongs to a living server.
            let exited = process.ended().map_err(StartError::io("watch the server"))?;
            if let Some(status) = exited {
                return Err(StartError::Exited { status, log: self.log_tail() });
            }
            match self.ask(process.pid()) {
                Ok(()) => return Ok(()),
                Err(reason) if Instant::now() >= deadline => {
                    return Err(StartError::Silent { reason, log: self.log_tail() });
                }
                Err(_) => thread::sleep(POLL),
            }
        }
    }

    /// One attempt: does a server answer, and is it this process, on the port that was chosen?
    ///
    /// A server that cannot have its port ends at once, so what answers on the port is ours as
    /// well.
    fn ask(&self, pid: u32) -> Result<(), String> {
        let mut connection = self.connect().map_err(|error| error.to_string())?;
        // Fails as long as the server is loading its append-only file.
        let is_up = redis::cmd("PING").exec(&mut connection);
        if_known(is_up).map_err(|error| error.to_string())?;
        let info = redis::cmd("INFO").arg("server").query::<String>(&mut connection);
        let info = if_known(info).map_err(|error| error.to_string())?;
        let Some(info) = info else { return Ok(()) };
        let is = |name, value: String| info_field(&info, name) == Some(value.as_str());
        if !is("process_id", pid.to_string()) {
            return Err("another process answers on the socket".to_owned());
        }
        if self.listen != Listen::Unix && !is("tcp_port", self.port.to_string()) {
            return Err("the server listens on another port".to_owned());
        }
        Ok(())
    }

    fn config_text(&self) -> String {
        // Absolute: `dir` takes effect before most of these files are opened.
        let path = |name: &str| format!("\"{}\"", self.home.path().join(name).display());
        let port = self.port;
        let listen = match self.listen {
            Listen::Unix => "port 0".to_owned(),
            Listen::Tcp => format!("port {port}"),
            Listen::Tls(_) => format!(
                "port 0\ntls-port {port}\ntls-auth-clients no\ntls-ca-cert-file {}\n\
                 tls-cert-file {}\ntls-key-file {}",
                path(CA),
                path(CERT),
                path(KEY),
            ),
        };
        format!(
            "unixsocket {socket}\nunixsocketperm 700\nbind {address}\nprotected-mode no\n{listen}\n\
             daemonize no\nsave \"\"\ndir \"{data}\"\nuser {ADMIN} on >{password} ~* +@all\n\
             {directives}",
            socket = path(SOCKET),
            address = self.address(),
            data = self.data.display(),
            password = self.admin_password,
            directives = self.directives,
        )
    }
}

/// `None` if the server has no such command, by its configuration.
fn if_known<T>(reply: RedisResult<T>) -> RedisResult<Option<T>> {
    match reply {
        Err(error) if error.detail().is_some_and(|it| it.starts_with("unknown command")) => {
            Ok(None)
        }
        reply => reply.map(Some),
    }
}

/// The value of one line of an `INFO` reply.
pub(crate) fn info_field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// A new directory with a name short enough for a socket in it.
pub(crate) fn home() -> io::Result<TempDir> {
    let make = |parent: &Path| tempfile::Builder::new().prefix("delayline-").tempdir_in(parent);
    let home = make(&std::env::temp_dir())?;
    if home.path().join(SOCKET).as_os_str().len() < MAX_SOCKET_PATH_BYTES {
        return Ok(home);
    }
    make(Path::new("/tmp"))
}

/// Other users must not read keys and passwords.
fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut options = File::options();
    options.write(true).create(true).truncate(true).mode(0o600);
    io::Write::write_all(&mut options.open(path)?, text.as_bytes())
}

fn port_taken(error: &StartError) -> bool {
    matches!(error, StartError::Exited { log, .. } if log.contains("Address already in use"))
}

fn tail(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = fs::metadata(path)?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

pub(crate) const SOCKET: &str = "redis.sock";
/// macOS allows 104 bytes with the final zero, Linux 108.
const MAX_SOCKET_PATH_BYTES: usize = 104;
const CA: &str = "ca.pem";
const CERT: &str = "cert.pem";
const KEY: &str = "key.pem";
const ADMIN: &str = "delayline-test-admin";
/// A loaded machine needs a second or two; a large append-only file more.
const START_TIMEOUT: Duration = Duration::from_secs(30);
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(5);
/// Nodes of a cluster talk to each other on their port and so much.
const BUS_OFFSET: u16 = 10_000;
const PORT_ATTEMPTS: u32 = 10;
const LOG_TAIL_BYTES: u64 = 4096;
