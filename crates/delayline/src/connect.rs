//! From a URL to a connection.

use std::fmt;
#[cfg(any(feature = "redis", feature = "fred"))]
use std::sync::Arc;

use delayline_core::{ErrorKind, Violation};
#[cfg(any(feature = "redis", feature = "fred"))]
use delayline_redis_protocol::{ConnectOptions, HostPort, Survey, Topology, Transport};

use crate::connection::Way;
#[cfg(feature = "memory")]
use crate::local::Memory;
use crate::{Connection, Error};

/// The Redis client that carries the calls. Both behave the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RedisClient {
    /// The `redis` crate. Needs the feature `redis`.
    Redis,
    /// The `fred` crate. Needs the feature `fred`.
    Fred,
}

/// Where the queues are, and how to connect to them.
///
/// The URLs are:
///
/// - `memory:`: queues in this process, for tests and tools. All their messages are gone when the
///   process ends. Needs the feature `memory`
/// - `redis://[USER[:PASSWORD]@]HOST[:PORT][/DB]`: one server
/// - `redis-cluster://[USER[:PASSWORD]@]HOST[:PORT],HOST[:PORT]...`: a Redis Cluster, discovered
///   through any of these nodes
/// - `redis-sentinel://[USER[:PASSWORD]@]HOST[:PORT],HOST[:PORT].../SERVICE[/DB]`: the server that
///   these sentinels name as the primary of SERVICE; user and password are the server's
/// - `rediss://`, `rediss-cluster://`, `rediss-sentinel://`: the same over TLS
/// - `unix:PATH[?db=DB&user=USER&password=PASSWORD]`: one server, over a unix socket
///
/// All but the first accept `protocol=resp3` in their query and need the feature `redis` or `fred`.
///
/// Setters never fail: an option that does not fit the URL makes [`connect`](Self::connect) fail,
/// before anything is sent.
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
    /// The first option that does not fit the URL.
    misfit: Option<Error>,
}

/// What a URL names.
#[derive(Clone, Debug)]
enum Place {
    Memory,
    #[cfg(any(feature = "redis", feature = "fred"))]
    Server(Box<ConnectOptions>),
}

impl Connect {
    /// Parses the URL. Nothing is connected yet.
    ///
    /// # Errors
    ///
    /// If the URL is malformed, if its scheme is unknown, or
    /// ([`ErrorKind::Unsupported`]) if this build lacks the feature for it. The URL, which may hold
    /// a password, is never part of the error; its scheme is.
    pub fn new(url: &str) -> Result<Self, Error> {
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
        Ok(Self { place, client: RedisClient::default(), misfit: None })
    }

    /// Chooses the Redis client. The default is the `redis` crate if it is part of the build, else
    /// `fred`. Has no effect on a `memory:` URL.
    pub const fn client(mut self, client: RedisClient) -> Self {
        self.client = client;
        self
    }

    /// Trusts these certificate authorities, in PEM format, instead of those of the operating
    /// system. Only `rediss` URLs use TLS.
    #[cfg(any(feature = "redis", feature = "fred"))]
    pub fn ca_pem(self, pem: impl Into<Vec<u8>>) -> Self {
        let pem = pem.into();
        self.with(not_encrypted, |options| {
            let fits = options.topology.is_encrypted();
            options.ca_pem = Some(pem);
            Ok(fits)
        })
    }

    /// Logs in to the sentinels of a `redis-sentinel` URL with this user (empty for the default
    /// user) and password. The sentinels get no other login, and the servers do not get this one.
    #[cfg(any(feature = "redis", feature = "fred"))]
    pub fn sentinel_login(self, user: &str, password: &str) -> Self {
        self.with(no_sentinels, |options| {
            options.sentinel_username = Some(user.to_owned()).filter(|user| !user.is_empty());
            options.sentinel_password = Some(password.into());
            Ok(matches!(options.topology, Topology::Sentinel { .. }))
        })
    }

    /// Connects to `to` wherever the cluster or the sentinels name `from`, both as `HOST:PORT`: for
    /// address translation, such as between a container and its host. Certificates must name the
    /// host of `to`.
    #[cfg(any(feature = "redis", feature = "fred"))]
    pub fn map_address(self, from: &str, to: &str) -> Self {
        self.with(nobody_names, |options| {
            options.address_map.insert(from.parse::<HostPort>()?, to.parse()?);
            Ok(!matches!(options.topology, Topology::Single(_)))
        })
    }

    /// Changes the options of a server. `change` returns whether the option fits the URL; if it
    /// does not, `misfit` says why.
    #[cfg(any(feature = "redis", feature = "fred"))]
    fn with(
        mut self,
        misfit: fn(String) -> Error,
        change: impl FnOnce(&mut ConnectOptions) -> Result<bool, Error>,
    ) -> Self {
        let error = match &mut self.place {
            Place::Memory => Some(misfit("memory:".to_owned())),
            Place::Server(options) => match change(options) {
                Ok(true) => None,
                Ok(false) => Some(misfit(options.topology.to_string())),
                Err(error) => Some(error),
            },
        };
        self.misfit = self.misfit.or(error);
        self
    }

    /// Whether the password is sent over a network where others can read it: without TLS, and to
    /// another host than this one.
    #[must_use]
    pub fn exposes_password(&self) -> bool {
        match &self.place {
            Place::Memory => false,
            #[cfg(any(feature = "redis", feature = "fred"))]
            Place::Server(options) => options.exposes_password(),
        }
    }

    /// Opens queues even on a server that evicts keys when its memory is full, and so may lose
    /// messages. By default such a server is refused with [`ErrorKind::Evicting`].
    pub fn allow_eviction(self, allow: bool) -> Self {
        #[cfg(any(feature = "redis", feature = "fred"))]
        if let Place::Server(mut options) = self.place {
            options.allow_eviction = allow;
            return Self { place: Place::Server(options), ..self };
        }
        let _ = allow;
        self
    }

    /// Reports the state of every server that holds queues or can take over from one that does, and
    /// what every sentinel knows. Changes nothing.
    ///
    /// A server that cannot be reached or refuses a command is reported as such. Each gets a
    /// connection of its own, with the login and the encryption that calls use.
    ///
    /// # Cancel safety
    ///
    /// This call changes nothing; its future can be dropped.
    ///
    /// # Errors
    ///
    /// If nothing that names the servers can be reached or accepts the login.
    /// [`ErrorKind::Unsupported`] for `memory:`, which is no server, or if the driver is not part
    /// of this build.
    #[cfg(any(feature = "redis", feature = "fred"))]
    pub async fn survey(self) -> Result<Survey, Error> {
        if let Some(misfit) = self.misfit {
            return Err(misfit);
        }
        match self.place {
            Place::Memory => Err(unsupported("a survey of a queue in memory")),
            Place::Server(options) => self.client.survey(&options).await,
        }
    }

    /// Connects to the server.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes any connection it has opened.
    ///
    /// # Errors
    ///
    /// If an option does not fit the URL, the server cannot be reached, or it
    /// refuses the login or the TLS session. [`ErrorKind::Unsupported`] if the driver is not part
    /// of this build.
    pub async fn connect(self) -> Result<Connection, Error> {
        if let Some(misfit) = self.misfit {
            return Err(misfit);
        }
        let way = match self.place {
            Place::Memory => memory(),
            #[cfg(any(feature = "redis", feature = "fred"))]
            Place::Server(options) => {
                let transport = self.client.connect(&options).await?;
                Ok(Way::Server { transport, allow_eviction: options.allow_eviction })
            }
        };
        way.map(Connection::new)
    }
}

#[cfg(any(feature = "redis", feature = "fred"))]
impl RedisClient {
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
impl Default for RedisClient {
    fn default() -> Self {
        if cfg!(feature = "fred") && !cfg!(feature = "redis") { Self::Fred } else { Self::Redis }
    }
}

/// Shows the address, but neither user name nor password.
impl fmt::Display for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Memory => f.write_str("memory:"),
            #[cfg(any(feature = "redis", feature = "fred"))]
            Place::Server(options) => write!(f, "{options}"),
        }
    }
}

/// Returns what precedes the first colon, if that can be a scheme. Anything else may be a password
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

#[cfg(any(feature = "redis", feature = "fred"))]
fn not_encrypted(address: String) -> Error {
    let reason = "only the URL of rediss://, rediss-cluster:// and rediss-sentinel:// is encrypted"
        .to_owned();
    Violation::Malformed { what: "a certificate authority for", value: address, reason }.into()
}

#[cfg(any(feature = "redis", feature = "fred"))]
fn no_sentinels(address: String) -> Error {
    let reason = "only a redis-sentinel:// URL has sentinels".to_owned();
    Violation::Malformed { what: "a login for the sentinels of", value: address, reason }.into()
}

#[cfg(any(feature = "redis", feature = "fred"))]
fn nobody_names(address: String) -> Error {
    let reason = "only a cluster and sentinels name other servers".to_owned();
    Violation::Malformed { what: "an address map for", value: address, reason }.into()
}

pub(crate) fn unsupported(capability: &'static str) -> Error {
    delayline_core::Error::new(ErrorKind::Unsupported(capability)).into()
}

const SCHEMES: &str = "memory:, redis://, redis-cluster:// and redis-sentinel://, with TLS rediss://, \
                       rediss-cluster:// and rediss-sentinel://, and unix:";

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(url: &str) -> String {
        Connect::new(url).unwrap_err().to_string()
    }

    #[test]
    fn an_unknown_scheme_is_named_and_nothing_else_of_the_url_is() {
        let error = refused("http://user:hunter2@host");
        assert!(error.contains("\"http\"") && error.contains("rediss://"), "{error}");
        for url in ["hunter2", "hunter2@host:6379", ":hunter2@host", "http://hunter2", ""] {
            assert!(!refused(url).contains("hunter2"), "{url}: {}", refused(url));
        }
    }

    #[cfg(feature = "memory")]
    #[tokio::test]
    async fn memory_needs_no_server() {
        let connection = crate::connect("memory:").await.unwrap();
        connection.queue::<u64>("orders").await.unwrap();
    }

    #[cfg(feature = "memory")]
    #[tokio::test]
    async fn a_queue_name_is_checked_before_anything_else() {
        let connection = crate::connect("memory:").await.unwrap();
        for name in ["", "a b", "a{b"] {
            let error = connection.queue::<u64>(name).await.unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Invalid(_)), "{name:?}: {error}");
        }
    }

    #[cfg(any(feature = "redis", feature = "fred"))]
    #[tokio::test]
    async fn an_option_that_does_not_fit_the_url_is_told_before_anything_is_dialed() {
        let to = |url| Connect::new(url).unwrap();
        for (connect, expected) in [
            (to("redis://nobody.invalid").ca_pem(""), "certificate authority"),
            (to("redis://nobody.invalid").sentinel_login("", "hunter2"), "sentinel"),
            (to("redis://nobody.invalid").map_address("a:1", "b:2"), "address map"),
            (to("redis-cluster://nobody.invalid").map_address("a", "b:2"), "\"a\""),
        ] {
            // The first misfit is told.
            let error = connect.sentinel_login("", "hunter2").connect().await.unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Invalid(_)), "{error}");
            assert!(error.to_string().contains(expected), "{error}");
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }
}
