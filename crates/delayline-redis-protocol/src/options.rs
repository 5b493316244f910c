//! Where the server is and how to speak with it: one description for both drivers.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};

/// Where the server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// TCP without encryption: `redis://host:port`.
    Tcp {
        /// Host name or address.
        host: String,
        /// Port.
        port: u16,
    },
    /// TCP with TLS: `rediss://host:port`. There is no falling back to TCP without it.
    Tls {
        /// Host name or address; the certificate must be made out to it.
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

/// An IPv6 address needs brackets before a port.
fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

/// Which version of the wire protocol to speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Resp {
    /// RESP2, understood by every server. The default.
    #[default]
    V2,
    /// RESP3, Redis 6 and later: `?protocol=resp3`.
    V3,
}

/// How to reach a Redis server.
///
/// Made from a URL (see [`FromStr`](#impl-FromStr-for-ConnectOptions)) or from an [`Address`], and
/// changed field by field. Neither `Debug` nor `Display` shows the password.
#[derive(Clone)]
#[non_exhaustive]
pub struct ConnectOptions {
    /// Where the server listens.
    pub address: Address,
    /// The ACL user; `None` is the server's default user.
    pub username: Option<String>,
    /// The password, if the server wants one.
    pub password: Option<SecretString>,
    /// The logical database, 0 by default.
    pub database: u32,
    /// The wire protocol.
    pub resp: Resp,
    /// Authorities to trust instead of the public ones, as PEM text. Only for [`Address::Tls`].
    pub ca_pem: Option<Vec<u8>>,
    /// Longest time to set up a connection: 2 s by default.
    pub connect_timeout: Duration,
    /// Longest time to wait for a reply: 5 s by default. After it the outcome is unknown.
    pub response_timeout: Duration,
    /// Work with a server that may evict messages. Off by default: opening such a queue is
    /// refused with [`ErrorKind::Evicting`](delayline_core::ErrorKind::Evicting).
    pub allow_eviction: bool,
}

impl ConnectOptions {
    /// The default options for a server at `address`.
    #[must_use]
    pub fn new(address: Address) -> Self {
        Self {
            address,
            username: None,
            password: None,
            database: 0,
            resp: Resp::V2,
            ca_pem: None,
            connect_timeout: Duration::from_secs(2),
            response_timeout: Duration::from_secs(5),
            allow_eviction: false,
        }
    }

    /// The password in clear, for the driver that has to send it.
    #[must_use]
    pub fn exposed_password(&self) -> Option<&str> {
        self.password.as_ref().map(SecretString::expose_secret)
    }

    /// Whether the password travels over a network where others can read it: without TLS, and to
    /// another host than this one.
    #[must_use]
    pub fn exposes_password(&self) -> bool {
        let Address::Tcp { host, .. } = &self.address else { return false };
        let is_here = host.eq_ignore_ascii_case("localhost")
            || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        self.password.is_some() && !is_here
    }

    /// The user name and password to log in with, in clear; `None` where no login is needed.
    ///
    /// A user without password logs in with an empty one: users with `nopass` may give any.
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
            .field("address", &self.address)
            .field("username", &self.username)
            .field("password", &self.password)
            .field("database", &self.database)
            .field("resp", &self.resp)
            // Not the text: somebody may have put a private key into it.
            .field("ca_pem", &self.ca_pem.as_ref().map(Vec::len))
            .field("connect_timeout", &self.connect_timeout)
            .field("response_timeout", &self.response_timeout)
            .field("allow_eviction", &self.allow_eviction)
            .finish()
    }
}

/// Shows the address without user name and password.
impl fmt::Display for ConnectOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)
    }
}

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
