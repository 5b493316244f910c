//! From a URL to a backend.

use std::fmt;
use std::sync::Arc;

use delayline_core::{ErrorKind, QueueName, Queueing, Violation};
#[cfg(any(feature = "redis", feature = "fred"))]
use delayline_redis_protocol::{ConnectOptions, HostPort, Inspection, Survey, Topology, Transport};

#[cfg(feature = "memory")]
use crate::connection::Memory;
use crate::connection::Way;
use crate::{Connection, Error, Queue};

/// Opens the queue of that name at a URL, with the default options of [`Connect`].
///
/// # Errors
///
/// See [`Connect::new`] and [`Connect::open`].
pub async fn open(url: &str, queue: &str) -> Result<Arc<dyn Queueing>, Error> {
    Connect::new(url, queue)?.open().await
}

/// Which Redis client carries the calls. Both behave the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Driver {
    /// The `redis` crate. Needs the feature `redis`.
    Redis,
    /// The `fred` crate. Needs the feature `fred`.
    Fred,
}

/// Where a queue is, and how to get there.
///
/// URLs are
/// - `memory:`: a new queue in this process, which ends with it; needs the feature `memory`,
/// - `redis://[USER[:PASSWORD]@]HOST[:PORT][/DB]`: one server,
/// - `redis-cluster://[USER[:PASSWORD]@]HOST[:PORT],HOST[:PORT]...`: a Redis Cluster, found through
///   any of these nodes,
/// - `redis-sentinel://[USER[:PASSWORD]@]HOST[:PORT],HOST[:PORT].../SERVICE[/DB]`: whichever server
///   these sentinels name as the primary of SERVICE; the login is the server's,
/// - `rediss://`, `rediss-cluster://`, `rediss-sentinel://`: the same over TLS,
/// - `unix:PATH[?db=DB&user=USER&password=PASSWORD]`: one server.
///
/// All but the first take `protocol=resp3` in their query and need the feature `redis` or `fred`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), delayline::Error> {
/// use delayline::{Connect, Queue};
///
/// let orders: Queue<String> = Connect::new("memory:", "orders")?.queue().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is connected until `open`"]
pub struct Connect {
    place: Place,
    queue: QueueName,
    driver: Driver,
}

/// What a URL names.
#[derive(Clone, Debug)]
enum Place {
    Memory,
    #[cfg(any(feature = "redis", feature = "fred"))]
    Server(Box<ConnectOptions>),
}

impl Connect {
    /// Reads the URL and the queue's name; connects nothing yet.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`] if the URL or the name is malformed, if the scheme is unknown, or
    /// ([`ErrorKind::Unsupported`]) if this build lacks the feature for it. The URL, which may hold
    /// a password, is never part of the error; its scheme is.
    pub fn new(url: &str, queue: &str) -> Result<Self, Error> {
        let queue = QueueName::new(queue)?;
        let place = match scheme(url)? {
            "memory" => Place::Memory,
            "redis" | "rediss" | "redis-cluster" | "rediss-cluster" | "redis-sentinel"
            | "rediss-sentinel" | "unix" => server(url)?,
            unknown => {
                return Err(Violation::Malformed {
                    what: "the URL scheme",
                    value: unknown.to_owned(),
                    reason: format!("the schemes are {SCHEMES}"),
                }
                .into());
            }
        };
        Ok(Self { place, queue, driver: Driver::default() })
    }

    /// Chooses the Redis client. Without this call it is the `redis` crate if it is part of the
    /// build, else `fred`. A `memory:` queue has none.
    pub const fn driver(mut self, driver: Driver) -> Self {
        self.driver = driver;
        self
    }

    /// Trusts these authorities, in PEM form, instead of the public ones.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`] for anything but a `rediss` URL, which alone is encrypted.
    pub fn ca_pem(self, pem: impl Into<Vec<u8>>) -> Result<Self, Error> {
        #[cfg(any(feature = "redis", feature = "fred"))]
        if let Place::Server(mut options) = self.place {
            if options.topology.is_encrypted() {
                options.ca_pem = Some(pem.into());
                return Ok(Self { place: Place::Server(options), ..self });
            }
            return Err(not_encrypted(options.topology.to_string()));
        }
        drop(pem.into());
        Err(not_encrypted("memory:".to_owned()))
    }

    /// Logs in to the sentinels with this user (empty for the default user) and password. They get no
    /// other login, and the servers don't get this one.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`] for anything but a `redis-sentinel` or `rediss-sentinel` URL.
    pub fn sentinel_login(self, user: &str, password: &str) -> Result<Self, Error> {
        #[cfg(any(feature = "redis", feature = "fred"))]
        if let Place::Server(mut options) = self.place {
            if matches!(options.topology, Topology::Sentinel { .. }) {
                options.sentinel_username = Some(user.to_owned()).filter(|user| !user.is_empty());
                options.sentinel_password = Some(password.into());
                return Ok(Self { place: Place::Server(options), ..self });
            }
            return Err(no_sentinels(options.topology.to_string()));
        }
        let _ = (user, password);
        Err(no_sentinels("memory:".to_owned()))
    }

    /// Dials `to` wherever the cluster or the sentinels name `from`, both as `HOST:PORT`: for address
    /// translation, as between a container and its host. Certificates must name the host of `to`.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`] if one of them is not `HOST:PORT`, or for anything but the URL of a cluster
    /// or of sentinels.
    pub fn map_address(self, from: &str, to: &str) -> Result<Self, Error> {
        #[cfg(any(feature = "redis", feature = "fred"))]
        if let Place::Server(mut options) = self.place {
            if let Topology::Single(_) = options.topology {
                return Err(nobody_names(options.topology.to_string()));
            }
            options.address_map.insert(from.parse::<HostPort>()?, to.parse()?);
            return Ok(Self { place: Place::Server(options), ..self });
        }
        let _ = (from, to);
        Err(nobody_names("memory:".to_owned()))
    }

    /// Whether the password travels over a network where others can read it: without TLS, and to
    /// another host than this one.
    #[must_use]
    pub fn exposes_password(&self) -> bool {
        match &self.place {
            Place::Memory => false,
            #[cfg(any(feature = "redis", feature = "fred"))]
            Place::Server(options) => options.exposes_password(),
        }
    }

    /// Opens the queue also on a server that evicts keys when its memory is full, and so may lose
    /// messages. Without this such a server is refused with [`ErrorKind::Evicting`].
    pub fn allow_eviction(self, allow: bool) -> Self {
        #[cfg(any(feature = "redis", feature = "fred"))]
        if let Place::Server(mut options) = self.place {
            options.allow_eviction = allow;
            return Self { place: Place::Server(options), ..self };
        }
        let _ = allow;
        self
    }

    /// Opens a queue of JSON payloads that knows its name; see [`Queue::named`].
    ///
    /// # Errors
    ///
    /// Like [`open`](Self::open).
    pub async fn queue<T>(self) -> Result<Queue<T>, Error> {
        let name = self.queue.clone();
        Ok(Queue::new(self.open().await?).named(&name))
    }

    /// Connects and looks whether the server is fit for a queue.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`]; its [`kind`](Error::kind) tells a server that cannot be reached from one
    /// that refuses the login or the TLS session, is a read-only replica, evicts keys or holds a
    /// newer queue. [`ErrorKind::Unsupported`] if the driver is not part of this build.
    pub async fn open(self) -> Result<Arc<dyn Queueing>, Error> {
        let name = self.queue.clone();
        self.connection().await?.open_named(name).await
    }

    /// Looks at the server, and at what the user may do on the queue, without opening it: also a
    /// server that [`open`](Self::open) refuses can be looked at. Changes nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`]: the server cannot be reached or refuses the login, the TLS session or
    /// all scripts. [`ErrorKind::Unsupported`] for `memory:`, which is no server.
    #[cfg(any(feature = "redis", feature = "fred"))]
    pub async fn inspect(self) -> Result<Inspection, Error> {
        let queue = self.queue.clone();
        self.connection().await?.inspect(&queue).await
    }

    /// Asks every server that holds queues, or that may take the place of one that does, what it says of
    /// itself, and every sentinel what it knows. Changes nothing.
    ///
    /// Whoever cannot be reached or refuses a command is reported as such. Each is asked over a
    /// connection of its own, with the login and the encryption that calls have.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`]: nobody who names the servers can be reached or accepts the login.
    /// [`ErrorKind::Unsupported`] for `memory:`, which is no server, or if the driver is not part of
    /// this build.
    #[cfg(any(feature = "redis", feature = "fred"))]
    pub async fn survey(self) -> Result<Survey, Error> {
        match self.place {
            Place::Memory => Err(unsupported("a look at a server that is none")),
            Place::Server(options) => self.driver.survey(&options).await,
        }
    }

    /// Connects for several queues, which are opened by name from the connection: the one named
    /// here is only one of them, and is not opened by this.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`]: the server cannot be reached, or refuses the login or the TLS session.
    /// [`ErrorKind::Unsupported`] if the driver is not part of this build.
    pub async fn connection(self) -> Result<Connection, Error> {
        let way = match self.place {
            Place::Memory => memory(),
            #[cfg(any(feature = "redis", feature = "fred"))]
            Place::Server(options) => {
                let transport = self.driver.connect(&options).await?;
                Ok(Way::Server { transport, allow_eviction: options.allow_eviction })
            }
        };
        way.map(Connection::new)
    }
}

#[cfg(any(feature = "redis", feature = "fred"))]
impl Driver {
    async fn connect(self, options: &ConnectOptions) -> Result<Arc<dyn Transport>, Error> {
        match self {
            #[cfg(feature = "redis")]
            Self::Redis => Ok(Arc::new(delayline_redis::RedisTransport::connect(options).await?)),
            #[cfg(feature = "fred")]
            Self::Fred => Ok(Arc::new(delayline_fred::FredTransport::connect(options).await?)),
            #[cfg(not(all(feature = "redis", feature = "fred")))]
            _ => Err(unsupported("this driver")),
        }
    }

    async fn survey(self, options: &ConnectOptions) -> Result<Survey, Error> {
        match self {
            #[cfg(feature = "redis")]
            Self::Redis => Ok(delayline_redis::RedisTransport::survey(options).await?),
            #[cfg(feature = "fred")]
            Self::Fred => Ok(delayline_fred::FredTransport::survey(options).await?),
            #[cfg(not(all(feature = "redis", feature = "fred")))]
            _ => Err(unsupported("this driver")),
        }
    }
}

/// The `redis` crate if it is part of the build, else `fred`.
impl Default for Driver {
    fn default() -> Self {
        if cfg!(feature = "fred") && !cfg!(feature = "redis") { Self::Fred } else { Self::Redis }
    }
}

/// Shows the queue's name and the address, and neither user name nor password.
impl fmt::Display for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Memory => write!(f, "{} at memory:", self.queue),
            #[cfg(any(feature = "redis", feature = "fred"))]
            Place::Server(options) => write!(f, "{} at {options}", self.queue),
        }
    }
}

/// What stands before the first colon, if that can be a scheme. Anything else may be a password
/// and is not repeated.
fn scheme(url: &str) -> Result<&str, Violation> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    match url.split_once(':') {
        Some((scheme, _)) if !scheme.is_empty() && scheme.chars().all(allowed) => Ok(scheme),
        _ => Err(Violation::Malformed {
            what: "the URL",
            value: String::new(),
            reason: format!("it must begin with one of {SCHEMES}"),
        }),
    }
}

#[cfg(any(feature = "redis", feature = "fred"))]
fn server(url: &str) -> Result<Place, Error> {
    Ok(Place::Server(Box::new(url.parse()?)))
}

#[cfg(not(any(feature = "redis", feature = "fred")))]
fn server(_url: &str) -> Result<Place, Error> {
    Err(unsupported("a Redis server (the features `redis` and `fred`)"))
}

#[cfg(feature = "memory")]
fn memory() -> Result<Way, Error> {
    Ok(Way::Memory(Memory::default()))
}

#[cfg(not(feature = "memory"))]
fn memory() -> Result<Way, Error> {
    Err(unsupported("a queue in memory (the feature `memory`)"))
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

fn nobody_names(address: String) -> Error {
    let reason = "only a cluster and sentinels name other servers".to_owned();
    Violation::Malformed { what: "an address map for", value: address, reason }.into()
}

pub(crate) fn unsupported(capability: &'static str) -> Error {
    Error::Backend(delayline_core::Error::new(ErrorKind::Unsupported(capability)))
}

const SCHEMES: &str = "memory:, redis://, redis-cluster:// and redis-sentinel://, with TLS rediss://, \
                       rediss-cluster:// and rediss-sentinel://, and unix:";

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(url: &str) -> String {
        Connect::new(url, "orders").unwrap_err().to_string()
    }

    #[test]
    fn an_unknown_scheme_is_named_and_nothing_else_of_the_url_is() {
        let error = refused("http://user:hunter2@host");
        assert!(error.contains("\"http\"") && error.contains("rediss://"), "{error}");
        for url in ["hunter2", "hunter2@host:6379", ":hunter2@host", "http://hunter2", ""] {
            assert!(!refused(url).contains("hunter2"), "{url}: {}", refused(url));
        }
    }

    #[test]
    fn a_queue_name_is_checked_before_anything_else() {
        assert!(Connect::new("memory:", "a b").is_err());
    }

    #[cfg(feature = "memory")]
    #[tokio::test]
    async fn memory_needs_no_server() {
        open("memory:", "orders").await.unwrap();
        assert!(Connect::new("memory:", "orders").unwrap().ca_pem("").is_err());
    }
}
