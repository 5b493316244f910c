//! Connecting to the servers or the directory of a URL.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use delayline_core::Violation;
use delayline_redis_protocol::{ConnectOptions, HostPort, Survey, Topology, Transport, redacted};

use crate::directory_status::Backup;
use crate::driver::RedisClient;
use crate::local::Local;
#[cfg(feature = "file")]
use crate::registry::WorkerRegistry;
use crate::server::Server;
use crate::store::{Opening, Store};
use crate::{Connection, Error};

/// Connects to a URL with the default options of [`Connect`].
///
/// # Cancel safety
///
/// Dropping the future closes any connection it has opened.
///
/// # Errors
///
/// See [`Connect::new`] and [`Connect::connect`].
pub async fn connect(url: &str) -> Result<Connection, Error> {
    Connect::new(url)?.connect().await
}

/// The location of the queues, and the options for connecting to them.
///
/// The URLs are:
///
/// - `memory:`: queues in this process, for tests and tools. Their messages are gone when the
///   process ends
/// - `file:DIR`: queues in a directory on the local disk, which is created if it does not exist. A
///   call returns once its effect is synced to the disk, except for claims of workers. Only one
///   process can open a directory at a time. The path is taken literally;
///   `file:///var/lib/queues` works too. A path that begins with `~` is refused: write
///   `file:$HOME/queues` in a shell. Needs the feature `file`; the guide [Without
///   Redis](crate::guides::without_redis) explains its guarantees and limits
/// - `redis://[USER[:PASSWORD]@]HOST[:PORT][/DB]`: one server
/// - `redis-cluster://[USER[:PASSWORD]@]HOST[:PORT],HOST[:PORT]...`: a Redis Cluster, discovered
///   through any of these nodes
/// - `redis-sentinel://[USER[:PASSWORD]@]HOST[:PORT],HOST[:PORT].../SERVICE[/DB]`: the server that
///   these sentinels name as the primary of SERVICE; user and password are for the server
/// - `rediss://`, `rediss-cluster://`, `rediss-sentinel://`: the same over TLS
/// - `unix:PATH[?db=DB&user=USER&password=PASSWORD]`: one server, over a unix socket
///
/// All but the first two accept `protocol=resp3` in their query and need the feature `redis` or
/// `fred` to connect. Case does not matter in a scheme. URLs of other libraries are accepted:
/// `valkey://`, `valkeys://`, `redis+sentinel://`, `redis+unix://`, `redis+socket://` and so on.
///
/// Setters never fail: if an option does not fit the URL, [`connect`](Self::connect) fails before
/// anything is sent.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), delayline::Error> {
/// use delayline::{Connect, Queue};
///
/// // Or "rediss://user:password@redis.example.com".
/// let connection = Connect::new("memory:")?.allow_eviction(false).connect().await?;
/// let orders: Queue<String> = connection.queue("orders").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is connected until `connect`"]
pub struct Connect {
    place: Place,
    client: RedisClient,
    allow_eviction: bool,
    /// The first option that does not fit the URL.
    misfit: Option<Error>,
}

#[derive(Clone, Debug)]
enum Place {
    Memory,
    File {
        path: PathBuf,
        how: Opening,
    },
    Server(Box<ConnectOptions>),
    /// Servers to which a driver is already connected.
    Ready(Arc<dyn Transport>),
}

impl Connect {
    /// Parses the URL, without connecting.
    ///
    /// # Errors
    ///
    /// If the URL is malformed or its scheme is unknown. The error shows the URL without the parts
    /// that may contain a password.
    pub fn new(url: &str) -> Result<Self, Error> {
        let place = match scheme(url)?.to_ascii_lowercase().as_str() {
            "memory" => Place::Memory,
            "file" => Place::File { path: directory(url)?, how: Opening::default() },
            _ if ConnectOptions::has_scheme(url) => Place::Server(Box::new(url.parse()?)),
            unknown => {
                return Err(Violation::Malformed {
                    what: "the URL scheme",
                    value: unknown.to_owned(),
                    reason: format!("the schemes are {SCHEMES}"),
                }
                .into());
            }
        };
        Ok(Self::to(place))
    }

    /// Uses the Redis client that the program already has, through its driver crate:
    /// `delayline_redis::transport(&client)` or `delayline_fred::transport(&client)` returns the
    /// transport. This needs no feature of this crate, so only the driver crate determines the
    /// version of the client. The [guide](crate::guides::your_redis_client) has programs.
    ///
    /// The transport already has the addresses and the login, so options that set either are
    /// refused.
    ///
    /// ```no_run
    /// use std::sync::Arc;
    ///
    /// use delayline::backend::Transport;
    /// use delayline::{Connect, Error, Queue};
    ///
    /// async fn orders(transport: Arc<dyn Transport>) -> Result<Queue<u64>, Error> {
    ///     Connect::over(transport).connect().await?.queue("orders").await
    /// }
    /// ```
    pub fn over(transport: Arc<dyn Transport>) -> Self {
        Self::to(Place::Ready(transport))
    }

    fn to(place: Place) -> Self {
        Self { place, client: RedisClient::default(), allow_eviction: false, misfit: None }
    }

    /// Chooses the Redis client. The default is the `redis` crate if it is part of the build, and
    /// `fred` otherwise. Has no effect on `memory:` and `file:` URLs and on [`over`](Self::over).
    pub const fn client(mut self, client: RedisClient) -> Self {
        self.client = client;
        self
    }

    /// Trusts these certificate authorities, in PEM format, instead of those of the operating
    /// system. Only `rediss` URLs use TLS.
    pub fn ca_pem(self, pem: impl Into<Vec<u8>>) -> Self {
        let pem = pem.into();
        self.with(not_encrypted, |options| {
            let fits = options.topology.is_encrypted();
            options.ca_pem = Some(pem);
            Ok(fits)
        })
    }

    /// Logs in to the sentinels of a `redis-sentinel` URL with this user (empty for the default
    /// user) and password. Only the sentinels get this login, and they get no other.
    pub fn sentinel_login(self, user: &str, password: &str) -> Self {
        self.with(no_sentinels, |options| {
            options.sentinel_username = Some(user.to_owned()).filter(|user| !user.is_empty());
            options.sentinel_password = Some(password.into());
            Ok(matches!(options.topology, Topology::Sentinel { .. }))
        })
    }

    /// Connects to `to` wherever the cluster or the sentinels name `from`, both as `HOST:PORT`. Use
    /// it for address translation, for example between a container and its host. Certificates must
    /// name the host of `to`.
    pub fn map_address(self, from: &str, to: &str) -> Self {
        self.with(not_a_topology, |options| {
            options.address_map.insert(from.parse::<HostPort>()?, to.parse()?);
            Ok(!matches!(options.topology, Topology::Single(_)))
        })
    }

    /// Changes the options of a server. `change` returns whether the option fits the URL; if it
    /// does not, `misfit` says why.
    fn with(
        mut self,
        misfit: fn(String) -> Error,
        change: impl FnOnce(&mut ConnectOptions) -> Result<bool, Error>,
    ) -> Self {
        let error = match &mut self.place {
            Place::Memory | Place::File { .. } | Place::Ready(_) => Some(misfit(self.to_string())),
            Place::Server(options) => match change(options) {
                Ok(true) => None,
                Ok(false) => Some(misfit(options.topology.to_string())),
                Err(error) => Some(error),
            },
        };
        self.misfit = self.misfit.or(error);
        self
    }

    /// Returns `true` if the password is sent to another host without TLS, so that others on the
    /// network can read it. For [`over`](Self::over) this is unknown, so the result is `false`.
    #[must_use]
    pub fn exposes_password(&self) -> bool {
        match &self.place {
            Place::Memory | Place::File { .. } | Place::Ready(_) => false,
            Place::Server(options) => options.exposes_password(),
        }
    }

    /// Opens queues even on a server that evicts keys when its memory is full, and can therefore
    /// lose messages. By default such a server is refused with
    /// [`ErrorKind::Evicting`](crate::ErrorKind::Evicting).
    pub const fn allow_eviction(mut self, allow: bool) -> Self {
        self.allow_eviction = allow;
        self
    }

    /// Opens the directory of a `file:` URL even if the machine's clock is more than an hour behind
    /// the last use of the queues. Their time then continues from the current time. By default,
    /// this is refused with [`ErrorKind::Storage`](crate::ErrorKind::Storage): such a clock is
    /// usually wrong, and delays every message.
    pub fn accept_clock(self, accept: bool) -> Self {
        self.with_directory(|how| how.accept_clock = accept)
    }

    /// Lets other processes of the same user reach the queues of a `file:` URL through a socket,
    /// while this process has the directory open: see [`beside`](Self::beside). Each subcommand of
    /// `delayline` does this, so that others work while it runs. The socket appears after 0.3 s:
    /// others wait for a process that closes the directory sooner. If the socket cannot be bound, a
    /// warning is logged. Has no effect on systems without unix sockets.
    pub fn share(self, share: bool) -> Self {
        self.with_directory(|how| how.share = share)
    }

    /// If another process has opened the directory of a `file:` URL and [shares](Self::share) it,
    /// connects to that process instead of failing with
    /// [`ErrorKind::InUse`](crate::ErrorKind::InUse). Waits for up to a second for each process
    /// that has it open and does not share it, or not yet.
    ///
    /// Such a connection is for operators: they can list, examine and change its queues, and send
    /// messages. Workers and relays fail with
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported), because they must run in the
    /// process that has opened the directory.
    pub fn beside(self, beside: bool) -> Self {
        self.with_directory(|how| how.beside = beside)
    }

    fn with_directory(mut self, change: impl FnOnce(&mut Opening)) -> Self {
        if let Place::File { how, .. } = &mut self.place {
            change(how);
        } else {
            let misfit = no_directory(self.to_string());
            self.misfit.get_or_insert(misfit);
        }
        self
    }

    /// Reports the state of every server that holds queues, of every replica that could take over,
    /// and of every sentinel. Changes nothing.
    ///
    /// A server that is unreachable or refuses a command is reported as such. Each server gets a
    /// separate connection, with the login and the encryption that calls use.
    ///
    /// # Cancel safety
    ///
    /// This call changes nothing; its future can be dropped.
    ///
    /// # Errors
    ///
    /// If none of the addresses that name the servers can be reached or accepts the login.
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) for `memory:`, `file:` and
    /// [`over`](Self::over), which have no addresses, or if the driver is not part of this build.
    pub async fn survey(self) -> Result<Survey, Error> {
        if let Some(misfit) = self.misfit {
            return Err(misfit);
        }
        match self.place {
            Place::Memory | Place::File { .. } | Place::Ready(_) => {
                Err(Error::unsupported("a survey without a URL of servers"))
            }
            Place::Server(options) => self.client.dialer()?.survey(&options).await,
        }
    }

    /// Copies the directory of a `file:` URL to the new directory `to`, also while a process has it
    /// open, which does not notice. The copy has every change that was acknowledged before this
    /// call. To restore it, stop the process and put the copy in the place of the directory.
    ///
    /// The copy is read again and compared before it gets its name. It must be on a local disk, and
    /// not in the directory itself. While it is made, this process holds all messages in memory.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the copy is still made.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DiskFull`](crate::ErrorKind::DiskFull), or
    /// [`ErrorKind::InUse`](crate::ErrorKind::InUse) if another call makes the same copy: these can
    /// be retried later. [`ErrorKind::Storage`](crate::ErrorKind::Storage) if `to` exists or cannot
    /// be written, or if the queues cannot be read.
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) for other URLs, and without the
    /// feature `file`. No copy is left.
    pub async fn backup(self, to: impl Into<PathBuf>) -> Result<Backup, Error> {
        if let Some(misfit) = self.misfit {
            return Err(misfit);
        }
        match self.place {
            #[cfg(feature = "file")]
            Place::File { path, .. } => crate::file::backup(path, to.into()).await,
            _ => {
                let _ = to;
                Err(Error::unsupported("a backup of queues that are in no directory"))
            }
        }
    }

    /// Connects to the server, or opens the directory, which is read completely in a separate
    /// thread.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes any connection it has opened. A directory that is being opened is
    /// closed once it has been read.
    ///
    /// # Errors
    ///
    /// If an option does not fit the URL, the server cannot be reached, or it refuses the login or
    /// the TLS session. [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the driver is
    /// not part of this build, or outside of a Tokio runtime. Later calls outside of a runtime fail
    /// in the same way; only `memory:` needs none.
    ///
    /// For a directory: [`ErrorKind::InUse`](crate::ErrorKind::InUse), which names the process that
    /// has opened it; [`ErrorKind::DiskFull`](crate::ErrorKind::DiskFull); or
    /// [`ErrorKind::Storage`](crate::ErrorKind::Storage) if it is damaged, on a network file
    /// system, or belongs to another program. The stored data is not changed.
    pub async fn connect(self) -> Result<Connection, Error> {
        if let Some(misfit) = self.misfit {
            return Err(misfit);
        }
        let server = |transport| Server::new(transport, self.allow_eviction);
        let store: Arc<dyn Store> = match self.place {
            Place::Memory => Arc::new(Local::memory()),
            #[cfg(feature = "file")]
            Place::File { path, how } => {
                let registry = WorkerRegistry::default();
                let store = crate::file::open(path, how, registry.clone()).await?;
                return Ok(Connection::with(store, registry));
            }
            #[cfg(not(feature = "file"))]
            Place::File { .. } => {
                return Err(Error::unsupported("a file: URL (the feature `file`)"));
            }
            Place::Ready(transport) => Arc::new(server(transport)),
            Place::Server(options) => {
                Arc::new(server(self.client.dialer()?.connect(&options).await?))
            }
        };
        Ok(Connection::new(store))
    }
}

/// Shows the address, but neither user name nor password.
impl fmt::Display for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Memory => f.write_str("memory:"),
            Place::File { path, .. } => write!(f, "file:{}", path.display()),
            Place::Server(options) => write!(f, "{options}"),
            Place::Ready(_) => f.write_str("a ready client"),
        }
    }
}

/// Returns the text before the first colon if it can be a scheme. Any other text may be a password
/// and is not repeated.
fn scheme(url: &str) -> Result<&str, Violation> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    match url.split_once(':') {
        Some((scheme, _)) if !scheme.is_empty() && scheme.chars().all(allowed) => Ok(scheme),
        _ => Err(Violation::Malformed {
            what: "the URL",
            value: redacted(url),
            reason: format!("it must begin with one of {SCHEMES}"),
        }),
    }
}

/// Returns the path of a `file:` URL.
fn directory(url: &str) -> Result<PathBuf, Violation> {
    let (_, path) = url.split_once(':').unwrap_or_default();
    if path.starts_with('~') {
        let reason = "only a shell expands ~, and not within a URL: use \"file:$HOME/DIR\" or an \
                      absolute path; a directory whose name begins with ~ is file:./~DIR";
        let value = format!("file:{path}");
        return Err(Violation::Malformed { what: "the URL", value, reason: reason.to_owned() });
    }
    let reason = match path.strip_prefix("//") {
        None if path.is_empty() => "the directory is missing: write file:DIR",
        None => return Ok(path.into()),
        Some(path) if path.starts_with('/') => return Ok(path.into()),
        Some(_) => "a directory is on this machine, so its URL has no host: write file:DIR",
    };
    // The apparent host may be a login.
    let value = redacted(url);
    Err(Violation::Malformed { what: "the URL", value, reason: reason.to_owned() })
}

fn no_directory(address: String) -> Error {
    let reason = "only a file: URL names a directory".to_owned();
    Violation::Malformed { what: "an option of directories for", value: address, reason }.into()
}

fn not_encrypted(address: String) -> Error {
    let reason = "only the URL of rediss://, rediss-cluster:// and rediss-sentinel:// is encrypted"
        .to_owned();
    Violation::Malformed { what: "a certificate authority for", value: address, reason }.into()
}

fn no_sentinels(address: String) -> Error {
    let reason = "only a redis-sentinel:// URL has sentinels".to_owned();
    Violation::Malformed { what: "a login for the sentinels of", value: address, reason }.into()
}

fn not_a_topology(address: String) -> Error {
    let reason = "only a cluster and sentinels name other servers".to_owned();
    Violation::Malformed { what: "an address map for", value: address, reason }.into()
}

const SCHEMES: &str = "memory:, file:, redis://, redis-cluster:// and redis-sentinel://, with TLS rediss://, \
                       rediss-cluster:// and rediss-sentinel://, and unix: (valkey is the same as redis)";

#[cfg(test)]
mod tests {
    use delayline_core::ErrorKind;

    use super::*;

    fn refused(url: &str) -> String {
        Connect::new(url).unwrap_err().to_string()
    }

    #[test]
    fn an_unknown_scheme_is_named_and_nothing_else_of_the_url_is() {
        for url in ["http://user:hunter2@host", "http://hunter2"] {
            let error = refused(url);
            assert!(error.contains("\"http\"") && error.contains("rediss://"), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
        for url in ["hunter2", "hunter2@host:6379", ":hunter2@host", "//:hunter2@host", ""] {
            assert!(!refused(url).contains("hunter2"), "{url}: {}", refused(url));
        }
        assert!(refused("/run/redis.sock").contains("\"/run/redis.sock\" is not valid"));
    }

    #[tokio::test]
    async fn memory_needs_no_server() {
        let connection = connect("memory:").await.unwrap();
        connection.queue::<u64>("orders").await.unwrap();
    }

    #[tokio::test]
    async fn a_queue_name_is_checked_before_anything_else() {
        let connection = connect("memory:").await.unwrap();
        for name in ["", "a b", "a{b"] {
            let error = connection.queue::<u64>(name).await.unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Invalid(_)), "{name:?}: {error}");
        }
    }

    #[test]
    fn a_directory_is_on_this_machine() {
        for (url, shown) in [
            ("file:orders", "file:orders"),
            ("file:/srv/my orders?x", "file:/srv/my orders?x"),
            ("file:///srv/orders", "file:/srv/orders"),
            ("FILE:/srv", "file:/srv"),
            ("Valkey+Socket:/run/redis.sock", "unix:/run/redis.sock"),
            ("file:./~orders", "file:./~orders"),
        ] {
            assert_eq!(Connect::new(url).unwrap().to_string(), shown);
        }
        for url in ["file:", "file://", "file://user:hunter2@host/srv"] {
            let error = refused(url);
            assert!(error.contains("write file:DIR") && !error.contains("hunter2"), "{error}");
            assert!(error.contains("the URL \"file:"), "{error}");
        }
        for url in ["file:~", "file:~/orders", "file:~me/orders"] {
            let error = refused(url);
            assert!(error.contains("\"file:$HOME/DIR\"") && error.contains(url), "{error}");
        }
    }

    #[tokio::test]
    async fn an_option_that_does_not_fit_the_url_is_told_before_anything_is_dialed() {
        let to = |url| Connect::new(url).unwrap();
        for (connect, expected) in [
            (to("redis://absent.invalid").ca_pem(""), "certificate authority"),
            (to("redis://absent.invalid").sentinel_login("", "hunter2"), "sentinel"),
            (to("redis://absent.invalid").map_address("a:1", "b:2"), "address map"),
            (to("redis-cluster://absent.invalid").map_address("a", "b:2"), "\"a\""),
            (to("file:absent").ca_pem(""), "certificate authority"),
            (to("redis://absent.invalid").accept_clock(true), "option of directories"),
        ] {
            // The first mismatch is reported.
            let error = connect.sentinel_login("", "hunter2").connect().await.unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Invalid(_)), "{error}");
            assert!(error.to_string().contains(expected), "{error}");
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }
}
