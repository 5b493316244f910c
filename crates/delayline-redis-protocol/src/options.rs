//! Where the servers are and how to connect to them: one description for all drivers.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use delayline_core::Violation;
use secrecy::{ExposeSecret, SecretString};

use crate::host_port::{HostPort, bracketed};

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// TCP without encryption: `redis://host:port`.
    Tcp {
        /// Host name or address.
        host: String,
        /// Port.
        port: u16,
    },
    /// TCP with TLS: `rediss://host:port`. It never falls back to unencrypted TCP.
    Tls {
        /// Host name or address, which the certificate must name.
        host: String,
        /// Port.
        port: u16,
    },
    /// A unix socket: `unix:PATH`.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } => write!(f, "redis://{}:{port}", bracketed(host)),
            Self::Tls { host, port } => write!(f, "rediss://{}:{port}", bracketed(host)),
            // After `unix:` two slashes would begin a host.
            Self::Unix(path) if path.as_os_str().as_encoded_bytes().starts_with(b"//") => {
                write!(f, "unix://{}", path.display())
            }
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// The servers that hold the queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topology {
    /// One server.
    Single(Address),
    /// A Redis Cluster: `redis-cluster://host:port,host:port`.
    Cluster {
        /// Nodes from which the others are discovered, at least one. All TCP, or all TLS.
        seeds: Vec<Address>,
    },
    /// The current primary of a service: `redis-sentinel://host:port,host:port/service`.
    Sentinel {
        /// The sentinels, at least one. All TCP, or all TLS; the servers use the same.
        sentinels: Vec<Address>,
        /// The name by which the sentinels know the primary.
        service: String,
    },
}

impl Topology {
    /// The addresses as configured.
    #[must_use]
    pub fn addresses(&self) -> &[Address] {
        match self {
            Self::Single(address) => std::slice::from_ref(address),
            Self::Cluster { seeds } => seeds,
            Self::Sentinel { sentinels, .. } => sentinels,
        }
    }

    /// Whether connections are encrypted.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.addresses().iter().all(|address| matches!(address, Address::Tls { .. }))
    }

    /// The addresses as host and port, and whether they are encrypted.
    ///
    /// # Errors
    ///
    /// There is no address, one is a unix socket, or only some of them are encrypted.
    pub(crate) fn names(&self) -> Result<(Vec<HostPort>, bool), Violation> {
        let refused = |reason: &str| Violation::Malformed {
            what: "list of servers",
            value: self.to_string(),
            reason: reason.to_owned(),
        };
        let (mut names, is_encrypted) = (Vec::new(), self.is_encrypted());
        for address in self.addresses() {
            match address {
                Address::Tls { host, port } if is_encrypted => {
                    names.push(HostPort { host: host.clone(), port: *port });
                }
                Address::Tcp { host, port } => {
                    names.push(HostPort { host: host.clone(), port: *port });
                }
                Address::Tls { .. } => return Err(refused("some are encrypted and some are not")),
                Address::Unix(_) => return Err(refused("a unix socket reaches only one server")),
            }
        }
        if names.is_empty() { Err(refused("it is empty")) } else { Ok((names, is_encrypted)) }
    }
}

/// Shows the URL without user name and password.
impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, addresses, service) = match self {
            Self::Single(address) => return write!(f, "{address}"),
            Self::Cluster { seeds } => ("cluster", seeds, None),
            Self::Sentinel { sentinels, service } => ("sentinel", sentinels, Some(service)),
        };
        write!(f, "redis{}-{kind}://", if self.is_encrypted() { "s" } else { "" })?;
        for (number, address) in addresses.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            match address {
                Address::Tcp { host, port } | Address::Tls { host, port } => {
                    write!(f, "{comma}{}:{port}", bracketed(host))?;
                }
                Address::Unix(path) => write!(f, "{comma}{}", path.display())?,
            }
        }
        service.map_or(Ok(()), |service| write!(f, "/{service}"))
    }
}

/// The version of the wire protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Resp {
    /// RESP2, understood by every server. The default.
    #[default]
    V2,
    /// RESP3, Redis 6 and later: `?protocol=resp3`.
    V3,
}

/// How to connect to Redis.
///
/// Created from a URL (see [`FromStr`](#impl-FromStr-for-ConnectOptions)) or from a [`Topology`],
/// then changed field by field. Neither `Debug` nor `Display` shows the password.
#[derive(Clone)]
#[non_exhaustive]
pub struct ConnectOptions {
    /// The servers that hold the queues.
    pub topology: Topology,
    /// The ACL user; `None` for the server's default user.
    pub username: Option<String>,
    /// The password, if the server requires one.
    ///
    /// If the server requires none of its default user, this is an error. Other users with `nopass`
    /// accept any password.
    pub password: Option<SecretString>,
    /// The logical database, 0 by default.
    pub database: u32,
    /// The ACL user on the sentinels, which can differ from that on the servers.
    pub sentinel_username: Option<String>,
    /// The password on the sentinels; they get no other.
    pub sentinel_password: Option<SecretString>,
    /// Replaces addresses that cannot be reached from here, such as behind address translation:
    /// from what the cluster or the sentinels name to what to connect to.
    pub address_map: HashMap<HostPort, HostPort>,
    /// The wire protocol.
    pub resp: Resp,
    /// Certificate authorities to trust instead of the system's, in PEM format. Only with TLS.
    pub ca_pem: Option<Vec<u8>>,
    /// The time limit for opening a connection: 1 ms to one day, 2 s by default.
    pub connect_timeout: Duration,
    /// The time limit for a reply: 1 ms to one day, 5 s by default. After that the outcome is
    /// unknown.
    pub response_timeout: Duration,
}

impl ConnectOptions {
    /// Refuses time limits that no connection or reply can meet, and endless ones.
    pub(crate) fn validate(&self) -> Result<(), Violation> {
        let limits = [
            ("connect_timeout in ms", self.connect_timeout),
            ("response_timeout in ms", self.response_timeout),
        ];
        limits.into_iter().try_for_each(|(what, limit)| {
            let actual = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
            let (least, most) = (1, 86_400_000);
            let is_within = (least..=most).contains(&actual);
            if is_within {
                Ok(())
            } else {
                Err(Violation::OutOfRange { what, actual, least, most })
            }
        })
    }

    /// The default options for a server at `address`.
    #[must_use]
    pub fn new(address: Address) -> Self {
        Self::of(Topology::Single(address))
    }

    /// The default options for these servers.
    #[must_use]
    pub fn of(topology: Topology) -> Self {
        Self {
            topology,
            username: None,
            password: None,
            database: 0,
            sentinel_username: None,
            sentinel_password: None,
            address_map: HashMap::new(),
            resp: Resp::V2,
            ca_pem: None,
            connect_timeout: CONNECT_TIMEOUT,
            response_timeout: RESPONSE_TIMEOUT,
        }
    }

    /// The password in clear text, for the driver that sends it.
    #[must_use]
    pub fn exposed_password(&self) -> Option<&str> {
        self.password.as_ref().map(SecretString::expose_secret)
    }

    /// Whether the password is sent over a network where others can read it: without TLS, and to
    /// another host than this one.
    #[must_use]
    pub fn exposes_password(&self) -> bool {
        let is_exposed = |address: &Address| {
            let Address::Tcp { host, .. } = address else { return false };
            let is_here = host.eq_ignore_ascii_case("localhost")
                || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
            !is_here
        };
        let has_password = self.password.is_some() || self.sentinel_password.is_some();
        has_password && self.topology.addresses().iter().any(is_exposed)
    }

    /// The user name and password to log in with, in clear text; `None` if no login is needed.
    ///
    /// A user without a password logs in with an empty one: users with `nopass` accept any.
    #[must_use]
    pub fn exposed_login(&self) -> Option<(Option<&str>, &str)> {
        let user = self.username.as_deref();
        let password = self.exposed_password().or_else(|| user.map(|_| ""))?;
        Some((user, password))
    }
}

impl fmt::Debug for ConnectOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectOptions")
            .field("topology", &self.topology)
            .field("username", &self.username)
            .field("password", &self.password)
            .field("database", &self.database)
            .field("sentinel_username", &self.sentinel_username)
            .field("sentinel_password", &self.sentinel_password)
            .field("address_map", &self.address_map)
            .field("resp", &self.resp)
            // Only the length: it may contain a private key by mistake.
            .field("ca_pem", &self.ca_pem.as_ref().map(Vec::len))
            .field("connect_timeout", &self.connect_timeout)
            .field("response_timeout", &self.response_timeout)
            .finish()
    }
}

/// Shows the URL without user name and password.
impl fmt::Display for ConnectOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.topology)
    }
}

/// The default of [`ConnectOptions::connect_timeout`].
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// The default of [`ConnectOptions::response_timeout`].
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_debug_nor_display_shows_the_password() {
        let mut options = ConnectOptions::new(Address::Tls { host: "::1".into(), port: 6380 });
        options.username = Some("alice".into());
        options.password = Some("hunter2".into());
        options.ca_pem = Some(b"hunter2".to_vec());
        assert_eq!(options.to_string(), "rediss://[::1]:6380");
        let debug = format!("{options:?}");
        assert!(debug.contains("alice") && !debug.contains("hunter2"), "{debug}");
        assert_eq!(options.exposed_password(), Some("hunter2"));
    }

    #[test]
    fn passwords_are_exposed_without_tls_and_on_the_way_to_other_hosts() {
        let exposed = |url: &str| url.parse::<ConnectOptions>().unwrap().exposes_password();
        for url in
            ["redis://:pw@redis.example", "redis://a:pw@10.0.0.1:6380", "redis://:pw@[fd00::1]"]
        {
            assert!(exposed(url), "{url}");
        }
        for url in [
            "redis://redis.example",
            "rediss://:pw@redis.example",
            "redis://:pw@localhost",
            "redis://:pw@127.0.0.2",
            "redis://:pw@[::1]:7000",
            "unix:/run/redis.sock?password=pw",
        ] {
            assert!(!exposed(url), "{url}");
        }
    }
}
