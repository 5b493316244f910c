//! Parses [`ConnectOptions`] from a URL.

mod redacted;
mod scheme;

use std::path::PathBuf;
use std::str::FromStr;

use delayline_core::Violation;
use percent_encoding::percent_decode_str;
use url::{ParseError, Url};

pub use self::redacted::redacted;
use self::scheme::{Scheme, Shape};
use crate::{Address, ConnectOptions, Resp, Topology};

const DEFAULT_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;
const LONGEST_SERVICE: usize = 255;

/// Parses one of:
///
/// - `redis://[USER[:PASSWORD]@]HOST[:PORT][/DB]`: one server
/// - `redis-cluster://[USER[:PASSWORD]@]HOST[:PORT][,HOST[:PORT]...][/DB]`: a cluster that includes
///   these nodes
/// - `redis-sentinel://[USER[:PASSWORD]@]HOST[:PORT][,HOST[:PORT]...]/SERVICE[/DB]`: the primary
///   that these sentinels know as SERVICE; user and password are the server's
/// - `rediss://`, `rediss-cluster://` and `rediss-sentinel://`: the same, with TLS on all
///   connections
/// - `unix:PATH` or `unix://[USER[:PASSWORD]@]/PATH`: one server
///
/// Case does not matter in a scheme. The spellings of other libraries are accepted: `valkey` and
/// `valkeys` for `redis` and `rediss`, `+` for `-`, `redis+unix:` and `redis+socket:` for `unix:`,
/// and `redis+tls://` and `redis+ssl://` for `rediss://`.
///
/// The query can contain `protocol=resp2|resp3`, `db`, `user` and `password`; for a cluster and
/// sentinels `node=HOST[:PORT]`, repeatable; and for sentinels `service_name`, `sentinel_username`
/// and `sentinel_password`. With `service_name`, the path has the database alone. Other libraries'
/// names of these parameters are accepted, too.
///
/// The default PORT is 6379, and 26379 for a sentinel. Reserved characters in a user name or
/// password must be percent-encoded, as in any URL. The path of a unix socket is taken literally,
/// up to a `?`, and may be [long](crate::SocketPath). The error shows neither user name, password
/// nor query.
impl FromStr for ConnectOptions {
    type Err = Violation;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Some((name, rest)) = text.split_once(':') else {
            return Err(malformed(text, scheme::EXPECTED));
        };
        let Some(scheme) = Scheme::of(name) else { return Err(unknown_scheme(name)) };
        let options = match (scheme.shape, rest.strip_prefix("//")) {
            (Shape::Unix, _) => unix(scheme, rest),
            (_, Some(rest)) => network(scheme, rest),
            (_, None) => Err("write // between the scheme and the host".into()),
        };
        options.map_err(|reason: Reason| malformed(text, reason))
    }
}

impl ConnectOptions {
    /// Returns `true` if the text begins with a scheme that [`FromStr`] reads.
    #[must_use]
    pub fn has_scheme(text: &str) -> bool {
        text.split_once(':').is_some_and(|(name, _)| Scheme::of(name).is_some())
    }
}

/// Why a URL is refused, without its text.
type Reason = std::borrow::Cow<'static, str>;

fn network(scheme: Scheme, rest: &str) -> Result<ConnectOptions, Reason> {
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    refuse_fragment(fragment)?;
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let query = Query::read(query, scheme.shape)?;
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (login, hosts) = match authority.rsplit_once('@') {
        Some((login, hosts)) => (format!("{login}@"), hosts),
        None => (String::new(), authority),
    };
    let (mut addresses, mut first) = (Vec::new(), None);
    for host in hosts.split(',').chain(query.nodes.iter().copied()) {
        if host.contains('@') {
            return Err("the user and the password belong before the first host".into());
        }
        let url = Url::parse(&format!("redis://{login}{host}")).map_err(unreadable)?;
        let address = address(&url, scheme)?;
        if addresses.contains(&address) {
            return Err("a host appears more than once".into());
        }
        addresses.push(address);
        first.get_or_insert(url);
    }
    let url = first.ok_or("the host is missing")?;
    let path = path.strip_suffix('/').unwrap_or(path);
    let (topology, path) = match scheme.shape {
        Shape::Cluster => (Topology::Cluster { seeds: addresses }, path),
        Shape::Sentinel => {
            let (service, path) = match query.service {
                Some(service) => (service, path),
                None => path.split_once('/').unwrap_or((path, "")),
            };
            (Topology::Sentinel { sentinels: addresses, service: self::service(service)? }, path)
        }
        Shape::Single | Shape::Unix => match <[Address; 1]>::try_from(addresses) {
            Ok([address]) => (Topology::Single(address), path),
            Err(_) => return Err("several hosts need redis-cluster:// or redis-sentinel://".into()),
        },
    };
    let user = Some(decoded(url.username())?).filter(|user| !user.is_empty());
    let password = url.password().map(decoded).transpose()?;
    let path = Some(path).filter(|path| !path.is_empty()).map(database).transpose()?;
    query.options(topology, (user, password), path)
}

fn unix(scheme: Scheme, rest: &str) -> Result<ConnectOptions, Reason> {
    if scheme.is_encrypted {
        return Err("a unix socket is not encrypted: write unix:/path".into());
    }
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (mut login, mut path) = ("", path);
    if let Some(rest) = path.strip_prefix("//") {
        let (authority, _) = rest.split_once('/').unwrap_or((rest, ""));
        path = rest.get(authority.len()..).unwrap_or_default();
        let has_host = !authority.is_empty() && !authority.ends_with('@');
        if has_host || path.is_empty() && !authority.is_empty() {
            return Err("a unix socket has no host: write unix:/path".into());
        }
        login = authority.strip_suffix('@').unwrap_or_default();
    }
    if path.is_empty() {
        return Err("the path of the unix socket is missing".into());
    }
    let (user, password) = match login.split_once(':') {
        Some((user, password)) => (user, Some(decoded(password)?)),
        None => (login, None),
    };
    let user = Some(decoded(user)?).filter(|user| !user.is_empty());
    let topology = Topology::Single(Address::Unix(PathBuf::from(path)));
    Query::read(query, scheme.shape)?.options(topology, (user, password), None)
}

/// The parameters of a query, with the names that libraries give them.
#[derive(Default)]
struct Query<'a> {
    resp: Option<Resp>,
    database: Option<u32>,
    user: Option<String>,
    password: Option<String>,
    nodes: Vec<&'a str>,
    service: Option<&'a str>,
    sentinel_user: Option<String>,
    sentinel_password: Option<String>,
}

impl<'a> Query<'a> {
    /// Reads a query. A `+` stays a `+`: only forms read it as a space.
    fn read(text: &'a str, shape: Shape) -> Result<Self, Reason> {
        let (mut query, is_sentinel) = (Self::default(), shape == Shape::Sentinel);
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                "protocol" => once(&mut query.resp, protocol(value)?)?,
                "db" | "database" | "virtual_host" => {
                    once(&mut query.database, database(value)?)?;
                }
                "user" | "username" => once(&mut query.user, user(value)?)?,
                "password" | "pass" => once(&mut query.password, decoded(value)?)?,
                "node" if is_sentinel || shape == Shape::Cluster => query.nodes.push(value),
                "service_name" | "sentinelServiceName" | "sentinelMasterId" if is_sentinel => {
                    once(&mut query.service, value)?;
                }
                "sentinel_username" | "sentinelUsername" if is_sentinel => {
                    once(&mut query.sentinel_user, user(value)?)?;
                }
                "sentinel_password" | "sentinelPassword" if is_sentinel => {
                    once(&mut query.sentinel_password, decoded(value)?)?;
                }
                _ => return Err(unknown_parameter(text, pair, shape)),
            }
        }
        Ok(query)
    }

    /// The options of a URL whose login and database are `login` and `database`.
    fn options(
        self,
        topology: Topology,
        login: (Option<String>, Option<String>),
        database: Option<u32>,
    ) -> Result<ConnectOptions, Reason> {
        let mut options = ConnectOptions::of(topology);
        options.username = either(login.0, self.user)?.filter(|user| !user.is_empty());
        options.password = either(login.1, self.password)?.map(Into::into);
        options.database = either(database, self.database)?.unwrap_or_default();
        options.resp = self.resp.unwrap_or_default();
        options.sentinel_username = self.sentinel_user.filter(|user| !user.is_empty());
        options.sentinel_password = self.sentinel_password.map(Into::into);
        Ok(options)
    }
}

fn once<T>(place: &mut Option<T>, value: T) -> Result<(), Reason> {
    if place.replace(value).is_some() {
        return Err("a query parameter appears more than once".into());
    }
    Ok(())
}

/// What either the query or another part of the URL says.
fn either<T>(part: Option<T>, parameter: Option<T>) -> Result<Option<T>, Reason> {
    if part.is_some() && parameter.is_some() {
        return Err("the query repeats the user, the password or the database".into());
    }
    Ok(part.or(parameter))
}

fn address(url: &Url, scheme: Scheme) -> Result<Address, Reason> {
    let host = url.host_str().filter(|host| !host.is_empty()).ok_or("the host is missing")?;
    // What needed encoding can't be a host name.
    if host.contains('%') || !matches!(url.path(), "" | "/") || url.query().is_some() {
        return Err("the host is not a host name or address".into());
    }
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let is_sentinel = scheme.shape == Shape::Sentinel;
    let port = url.port().unwrap_or(if is_sentinel { SENTINEL_PORT } else { DEFAULT_PORT });
    if port == 0 {
        return Err("the port must be from 1 to 65535".into());
    }
    let is_encrypted = scheme.is_encrypted;
    Ok(if is_encrypted { Address::Tls { host, port } } else { Address::Tcp { host, port } })
}

fn service(text: &str) -> Result<String, Reason> {
    let service = percent_decode_str(text).decode_utf8();
    let service = service.map_err(|_| "the service name is not UTF-8")?.into_owned();
    if service.is_empty() {
        return Err("the service name is missing: write HOST:PORT,HOST:PORT/SERVICE".into());
    }
    // The rule of Sentinel.
    let is_of_names = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    if service.len() > LONGEST_SERVICE || !service.bytes().all(is_of_names) {
        return Err("the service name may have letters, digits and .-_ only".into());
    }
    Ok(service)
}

fn protocol(value: &str) -> Result<Resp, Reason> {
    match value {
        "resp2" | "2" => Ok(Resp::V2),
        "resp3" | "3" => Ok(Resp::V3),
        _ => Err("the protocol must be resp2 or resp3".into()),
    }
}

fn database(text: &str) -> Result<u32, Reason> {
    text.parse().map_err(|_| {
        // An unencoded password ends here.
        let in_password =
            if text.contains('@') { " (a / in a password must be written %2F)" } else { "" };
        format!("the database must be a number from 0{in_password}").into()
    })
}

/// Reads a user name, and refuses one that is followed by a password.
fn user(text: &str) -> Result<String, Reason> {
    if text.contains(':') {
        return Err("a : in a user name must be written %3A".into());
    }
    decoded(text)
}

fn decoded(text: &str) -> Result<String, Reason> {
    match percent_decode_str(text).decode_utf8() {
        Ok(text) => Ok(text.into_owned()),
        Err(_) => Err("the user name or password is not UTF-8".into()),
    }
}

/// Says what the parser found, in words that can't hold the text.
fn unreadable(error: ParseError) -> Reason {
    match error {
        ParseError::EmptyHost => "the host is missing",
        ParseError::InvalidPort => {
            "the port must be from 1 to 65535 (a / ? # or @ in a password must be percent-encoded)"
        }
        ParseError::InvalidIpv4Address | ParseError::InvalidIpv6Address => {
            "the host is not a valid address"
        }
        ParseError::IdnaError | ParseError::InvalidDomainCharacter => {
            "the host is not a host name or address"
        }
        _ => "it is not a URL",
    }
    .into()
}

fn refuse_fragment(fragment: &str) -> Result<(), Reason> {
    if fragment.contains('@') {
        return Err("a # in a user name or password must be written %23".into());
    }
    match fragment {
        "" => Ok(()),
        "insecure" => Err(always_verified("#insecure")),
        _ => Err("a URL of servers has no part behind a #: remove it".into()),
    }
}

/// Names the parameter, unless it may be a part of a password.
fn unknown_parameter(query: &str, pair: &str, shape: Shape) -> Reason {
    if query.contains('@') {
        return "a ? in a user name or password must be written %3F".into();
    }
    let is_of_names = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let name = pair.split_once('=').map(|(name, _)| name);
    let name = name.filter(|name| name.len() <= 32 && name.bytes().all(is_of_names));
    let name = name.filter(|_| !query.to_ascii_lowercase().contains("pass"));
    let name = name.unwrap_or_default();
    if ["ssl", "tls"].contains(&name) {
        return format!("the scheme decides whether TLS is used: write rediss, and remove {name}")
            .into();
    }
    if ["ssl", "tls", "insecure", "verify"].iter().any(|word| name.starts_with(word)) {
        return always_verified(name);
    }
    let known = match shape {
        Shape::Single | Shape::Unix => "",
        Shape::Cluster => ", node",
        Shape::Sentinel => ", node, service_name, sentinel_username, sentinel_password",
    };
    let name = if name.is_empty() { String::new() } else { format!(" {name}") };
    format!("unknown query parameter{name}; supported here: protocol, db, user, password{known}")
        .into()
}

/// Names the scheme if it looks like one: it may be the start of anything.
fn unknown_scheme(scheme: &str) -> Violation {
    let is_scheme = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    let is_shown = !scheme.is_empty() && scheme.len() <= 32 && scheme.bytes().all(is_scheme);
    Violation::Malformed {
        what: "scheme of the server address",
        value: if is_shown { scheme } else { redacted::HIDDEN }.to_owned(),
        reason: scheme::EXPECTED.to_owned(),
    }
}

fn malformed(text: &str, reason: impl Into<String>) -> Violation {
    Violation::Malformed { what: "server address", value: redacted(text), reason: reason.into() }
}

fn always_verified(setting: &str) -> Reason {
    format!(
        "certificates of servers are always verified: remove {setting}, and trust the authority \
         that signed them (`ca_pem`, or --tls-ca of the command)"
    )
    .into()
}

#[cfg(test)]
mod tests;
