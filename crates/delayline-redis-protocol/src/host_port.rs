//! The names of servers: host and port.

use std::fmt;
use std::str::FromStr;

use delayline_core::Violation;

/// The host and port of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostPort {
    /// Host name or IP address, without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
}

impl HostPort {
    /// A node's name as a server reported it, or `None` if it cannot be dialed.
    pub(crate) fn told(host: &str, port: u16) -> Option<Self> {
        const LONGEST_HOST: usize = 255;
        let is_of_hosts = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:%".contains(&byte);
        let is_host =
            !host.is_empty() && host.len() <= LONGEST_HOST && host.bytes().all(is_of_hosts);
        (is_host && port != 0).then(|| Self { host: host.to_owned(), port })
    }
}

/// Parses `HOST:PORT`, with an IPv6 address in brackets.
impl FromStr for HostPort {
    type Err = Violation;

    fn from_str(text: &str) -> Result<Self, Violation> {
        let parts = text.rsplit_once(':').map(|(host, port)| (unbracketed(host), port.parse()));
        let Some((host, Ok(port))) = parts else { return Err(no_host_port(text)) };
        Self::told(host, port).ok_or_else(|| no_host_port(text))
    }
}

pub(crate) fn unbracketed(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

fn no_host_port(text: &str) -> Violation {
    let reason = "it must be HOST:PORT, with the port from 1 to 65535".to_owned();
    Violation::Malformed { what: "server address", value: text.to_owned(), reason }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", bracketed(&self.host), self.port)
    }
}

/// An IPv6 address needs brackets before a port.
pub(crate) fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}
