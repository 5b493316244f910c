//! Parses [`ConnectOptions`] from a URL.

use std::path::PathBuf;
use std::str::FromStr;

use delayline_core::Violation;
use percent_encoding::percent_decode_str;
use url::{ParseError, Url};

use crate::{Address, ConnectOptions, Resp, Topology};

const DEFAULT_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;
const LONGEST_SERVICE: usize = 255;
const EXPECTED: &str = "it must begin with redis://, redis-cluster:// or redis-sentinel://, with TLS \
                        rediss://, rediss-cluster:// or rediss-sentinel://, or with unix:";

/// Parses one of:
///
/// - `redis://[USER[:PASSWORD]@]HOST[:PORT][/DB]`: one server
/// - `redis-cluster://[USER[:PASSWORD]@]HOST[:PORT][,HOST[:PORT]...][/DB]`: a cluster that includes
///   these nodes
/// - `redis-sentinel://[USER[:PASSWORD]@]HOST[:PORT][,HOST[:PORT]...]/SERVICE[/DB]`: the primary
///   that these sentinels know as SERVICE; user and password are the server's
/// - `rediss://`, `rediss-cluster://` and `rediss-sentinel://`: the same, with TLS on all
///   connections
/// - `unix:PATH`: one server
///
/// The query can contain `protocol=resp2|resp3`, and for a unix socket also `db`, `user` and
/// `password`.
///
/// The default PORT is 6379, and 26379 for a sentinel. Reserved characters in a user name or
/// password must be percent-encoded, as in any URL. The path of a unix socket is taken literally,
/// up to a `?`. The error never repeats the text, which may contain a password.
impl FromStr for ConnectOptions {
    type Err = Violation;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(rest) = text.strip_prefix("unix:") {
            return unix(rest);
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(malformed(EXPECTED));
        };
        match scheme {
            "redis" | "rediss" => single(text, DEFAULT_PORT),
            "redis-cluster" => cluster("redis", rest),
            "rediss-cluster" => cluster("rediss", rest),
            "redis-sentinel" => sentinel("redis", rest),
            "rediss-sentinel" => sentinel("rediss", rest),
            unknown => Err(unknown_scheme(unknown)),
        }
    }
}

fn cluster(scheme: &str, rest: &str) -> Result<ConnectOptions, Violation> {
    let (seeds, options) = several(scheme, rest, DEFAULT_PORT)?;
    Ok(ConnectOptions { topology: Topology::Cluster { seeds }, ..options })
}

fn sentinel(scheme: &str, rest: &str) -> Result<ConnectOptions, Violation> {
    let missing = || malformed("the service name is missing: write HOST:PORT,HOST:PORT/SERVICE");
    let end = rest.find(['?', '#']).unwrap_or(rest.len());
    let (hosts, query) = rest.split_at(end);
    let (hosts, path) = hosts.split_once('/').ok_or_else(missing)?;
    let (service, database) = match path.split_once('/') {
        Some((service, database)) => (service, format!("/{database}")),
        None => (path, String::new()),
    };
    let service = percent_decode_str(service).decode_utf8();
    let service = service.map_err(|_| malformed("the service name is not UTF-8"))?.into_owned();
    if service.is_empty() {
        return Err(missing());
    }
    // The rule of Sentinel.
    let is_of_names = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    if service.len() > LONGEST_SERVICE || !service.bytes().all(is_of_names) {
        return Err(malformed("the service name may have letters, digits and .-_ only"));
    }
    let rest = format!("{hosts}{database}{query}");
    let (sentinels, options) = several(scheme, &rest, SENTINEL_PORT)?;
    Ok(ConnectOptions { topology: Topology::Sentinel { sentinels, service }, ..options })
}

/// Reads what stands behind `://` where there are several hosts: each as if it were the only one.
fn several(
    scheme: &str,
    rest: &str,
    default_port: u16,
) -> Result<(Vec<Address>, ConnectOptions), Violation> {
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(end);
    let (login, hosts) = match authority.rsplit_once('@') {
        Some((login, hosts)) => (format!("{login}@"), hosts),
        None => (String::new(), authority),
    };
    let (mut addresses, mut first) = (Vec::new(), None);
    for host in hosts.split(',') {
        let options = single(&format!("{scheme}://{login}{host}{rest}"), default_port)?;
        for address in options.topology.addresses() {
            if addresses.contains(address) {
                return Err(malformed("a host appears more than once"));
            }
            addresses.push(address.clone());
        }
        first.get_or_insert(options);
    }
    let options = first.ok_or_else(|| malformed("the host is missing"))?;
    Ok((addresses, options))
}

fn unix(rest: &str) -> Result<ConnectOptions, Violation> {
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let path = match path.strip_prefix("//") {
        Some(path) if path.starts_with('/') => path,
        Some(_) => return Err(malformed("a unix socket has no host: write unix:/path")),
        None => path,
    };
    if path.is_empty() {
        return Err(malformed("the path of the unix socket is missing"));
    }
    let mut options = ConnectOptions::new(Address::Unix(PathBuf::from(path)));
    let mut seen = Vec::new();
    for (name, value) in parameters(query) {
        match name {
            "protocol" => options.resp = protocol(value)?,
            "db" => options.database = database(value)?,
            "user" => options.username = Some(decoded(value)?).filter(|user| !user.is_empty()),
            "password" => options.password = Some(decoded(value)?.into()),
            _ => return Err(unknown_parameter("protocol, db, user and password")),
        }
        once(&mut seen, name)?;
    }
    Ok(options)
}

fn single(text: &str, default_port: u16) -> Result<ConnectOptions, Violation> {
    let url = Url::parse(text).map_err(unreadable)?;
    if url.fragment().is_some() {
        return Err(malformed("a # in a user name or password must be written %23"));
    }
    let address = address(&url, default_port)?;
    let mut options = ConnectOptions::new(address);
    options.username = Some(decoded(url.username())?).filter(|user| !user.is_empty());
    options.password = url.password().map(decoded).transpose()?.map(Into::into);
    options.database = match url.path() {
        "" | "/" => 0,
        path => database(path.strip_prefix('/').unwrap_or(path))?,
    };
    let mut seen = Vec::new();
    for (name, value) in parameters(url.query().unwrap_or_default()) {
        match name {
            "protocol" => options.resp = protocol(value)?,
            _ => return Err(unknown_parameter("protocol")),
        }
        once(&mut seen, name)?;
    }
    Ok(options)
}

fn address(url: &Url, default_port: u16) -> Result<Address, Violation> {
    let host = url.host_str().filter(|host| !host.is_empty());
    let host = host.ok_or_else(|| malformed("the host is missing"))?;
    // What needed encoding can't be a host name.
    if host.contains('%') {
        return Err(malformed("the host is not a host name or address"));
    }
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let port = url.port().unwrap_or(default_port);
    if port == 0 {
        return Err(malformed("the port must be from 1 to 65535"));
    }
    let is_encrypted = url.scheme() == "rediss";
    Ok(if is_encrypted { Address::Tls { host, port } } else { Address::Tcp { host, port } })
}

/// The parameters of a query, not decoded. A `+` stays a `+`: only forms read it as a space.
fn parameters(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

fn once<'a>(seen: &mut Vec<&'a str>, name: &'a str) -> Result<(), Violation> {
    if seen.contains(&name) {
        return Err(malformed("a query parameter appears more than once"));
    }
    seen.push(name);
    Ok(())
}

fn protocol(value: &str) -> Result<Resp, Violation> {
    match value {
        "resp2" => Ok(Resp::V2),
        "resp3" => Ok(Resp::V3),
        _ => Err(malformed("the protocol must be resp2 or resp3")),
    }
}

fn database(text: &str) -> Result<u32, Violation> {
    text.parse().map_err(|_| malformed("the database must be a number from 0"))
}

fn decoded(text: &str) -> Result<String, Violation> {
    match percent_decode_str(text).decode_utf8() {
        Ok(text) => Ok(text.into_owned()),
        Err(_) => Err(malformed("the user name or password is not UTF-8")),
    }
}

/// Says what the parser found, in words that can't hold the text.
fn unreadable(error: ParseError) -> Violation {
    malformed(match error {
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
    })
}

/// Names the scheme if it looks like one: it may be the start of anything.
fn unknown_scheme(scheme: &str) -> Violation {
    let is_scheme = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    if scheme.is_empty() || scheme.len() > 32 || !scheme.bytes().all(is_scheme) {
        return malformed(EXPECTED);
    }
    Violation::Malformed {
        what: "scheme of the server address",
        value: scheme.to_owned(),
        reason: EXPECTED.to_owned(),
    }
}

fn unknown_parameter(known: &str) -> Violation {
    malformed(format!("unknown query parameter; supported here: {known}"))
}

fn malformed(reason: impl Into<String>) -> Violation {
    Violation::Malformed {
        what: "server address",
        value: "(not shown)".to_owned(),
        reason: reason.into(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> ConnectOptions {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn reason(text: &str) -> String {
        let error = text.parse::<ConnectOptions>().expect_err(text);
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
        error.to_string()
    }

    fn tcp_address(host: &str, port: u16) -> Topology {
        Topology::Single(Address::Tcp { host: host.to_owned(), port })
    }

    fn unix_address(path: &str) -> Topology {
        Topology::Single(Address::Unix(path.into()))
    }

    #[test]
    fn a_character_that_no_host_has_is_told_as_such() {
        for url in ["redis://a^b", "redis://:hunter2@a b:6379"] {
            assert!(reason(url).contains("not a host name or address"), "{}", reason(url));
        }
    }

    #[test]
    fn host_alone_takes_the_defaults() {
        let options = read("redis://localhost");
        assert_eq!(options.topology, tcp_address("localhost", 6379));
        assert_eq!((options.username.as_deref(), options.exposed_password()), (None, None));
        assert_eq!((options.database, options.resp), (0, Resp::V2));
        assert_eq!(read("redis://localhost/").database, 0);
    }

    #[test]
    fn every_part_is_read() {
        let options = read("rediss://alice:p%40ss%2Fw%3A%23@db.example:6380/5?protocol=resp3");
        let address = Address::Tls { host: "db.example".into(), port: 6380 };
        assert_eq!(options.topology, Topology::Single(address));
        assert_eq!(options.username.as_deref(), Some("alice"));
        assert_eq!(options.exposed_password(), Some("p@ss/w:#"));
        assert_eq!((options.database, options.resp), (5, Resp::V3));
    }

    #[test]
    fn password_may_come_without_user_and_user_without_password() {
        let options = read("redis://:hunter2@h");
        assert_eq!(
            (options.username.as_deref(), options.exposed_password()),
            (None, Some("hunter2"))
        );
        let options = read("redis://alice@h");
        assert_eq!(
            (options.username.as_deref(), options.exposed_password()),
            (Some("alice"), None)
        );
    }

    #[test]
    fn clusters_have_several_hosts() {
        let options = read("redis-cluster://alice:p%2Cw@a:7000,[::1]:7001,c/5?protocol=resp3");
        let tcp = |host: &str, port| Address::Tcp { host: host.into(), port };
        let seeds = vec![tcp("a", 7000), tcp("::1", 7001), tcp("c", 6379)];
        assert_eq!(options.topology, Topology::Cluster { seeds });
        assert_eq!(options.username.as_deref(), Some("alice"));
        assert_eq!(options.exposed_password(), Some("p,w"));
        assert_eq!((options.database, options.resp), (5, Resp::V3));
        assert_eq!(options.to_string(), "redis-cluster://a:7000,[::1]:7001,c:6379");
        assert!(read("rediss-cluster://a,b").topology.is_encrypted());
        assert!(!read("redis-cluster://a,b").topology.is_encrypted());
    }

    #[test]
    fn sentinels_watch_over_a_service() {
        let options = read("rediss-sentinel://:hunter2@a,b:5000/my-primary/3?protocol=resp3");
        let tls = |host: &str, port| Address::Tls { host: host.into(), port };
        let sentinels = vec![tls("a", 26379), tls("b", 5000)];
        let service = "my-primary".to_owned();
        assert_eq!(options.topology, Topology::Sentinel { sentinels, service });
        assert_eq!(options.exposed_password(), Some("hunter2"));
        assert_eq!((options.database, options.resp), (3, Resp::V3));
        assert_eq!(options.to_string(), "rediss-sentinel://a:26379,b:5000/my-primary");
        assert_eq!(read("redis-sentinel://a/s").database, 0);
    }

    #[test]
    fn plus_is_a_plus() {
        assert_eq!(read("redis://:a+b@h").exposed_password(), Some("a+b"));
        assert_eq!(read("unix:/s?password=a+b%20c").exposed_password(), Some("a+b c"));
    }

    #[test]
    fn addresses_of_version_6_lose_their_brackets() {
        assert_eq!(read("redis://[::1]:7000").topology, tcp_address("::1", 7000));
        assert_eq!(read("redis://[::1]:7000").to_string(), "redis://[::1]:7000");
    }

    #[test]
    fn unix_path_is_literal() {
        for text in ["unix:/a/b.sock", "unix:///a/b.sock"] {
            assert_eq!(read(text).topology, unix_address("/a/b.sock"));
        }
        assert_eq!(read("unix:rel/b%20c#d").topology, unix_address("rel/b%20c#d"));
        let options = read("unix:/a?db=1&user=al%20ice&password=p%26w&protocol=resp3");
        assert_eq!(options.topology, unix_address("/a"));
        assert_eq!(options.username.as_deref(), Some("al ice"));
        assert_eq!(options.exposed_password(), Some("p&w"));
        assert_eq!((options.database, options.resp), (1, Resp::V3));
    }

    #[test]
    fn what_is_wrong_is_said_and_nothing_repeated() {
        let table = [
            ("http://hunter2@h", "\"http\" is not valid: it must begin with redis://"),
            ("localhost:6379", "it must begin with redis://"),
            ("hunter2", "it must begin with redis://"),
            ("user:hunter2@h", "it must begin with redis://"),
            ("hunter2 or so://x", "it must begin with redis://"),
            ("", "it must begin with redis://"),
            ("redis://", "the host is missing"),
            ("redis:///1", "the host is missing"),
            ("redis://:hunter2@", "the host is missing"),
            ("redis://h:0", "the port must be"),
            ("redis://h:65536", "the port must be"),
            ("redis://u:hunter2/x@h", "the port must be"),
            ("redis://u:12/hunter2@h", "the database must be a number"),
            ("redis://h/-1", "the database must be a number"),
            ("redis://h/1/2", "the database must be a number"),
            ("redis://h/4294967296", "the database must be a number"),
            ("redis://u:12#hunter2@h", "must be written %23"),
            ("redis://u:12?hunter2@h", "unknown query parameter; supported here: protocol"),
            ("redis://h?db=1", "unknown query parameter"),
            ("redis://h?protocol=hunter2", "the protocol must be resp2 or resp3"),
            ("redis://h?protocol=resp3&protocol=resp2", "appears more than once"),
            ("redis://h%20i", "the host is not"),
            ("redis://:%ff@h", "not UTF-8"),
            ("redis://[::1", "the host is not a valid address"),
            ("redis-cluster://", "the host is missing"),
            ("redis-cluster://a,,b", "the host is missing"),
            ("redis-cluster://a,b,a", "a host appears more than once"),
            ("redis-cluster://a:0,b", "the port must be"),
            ("redis-cluster://u:hunter2/x@a,b", "the port must be"),
            ("redis-cluster://a,b/x", "the database must be a number"),
            ("redis-cluster://u:hunter2,a,b", "the port must be"),
            ("redis-sentinel://a,b", "the service name is missing"),
            ("redis-sentinel://a,b/", "the service name is missing"),
            ("redis-sentinel://a/hunter2@b", "the service name may have letters"),
            ("redis-sentinel://a/s/x", "the database must be a number"),
            ("unix:", "the path of the unix socket is missing"),
            ("unix:?db=1", "the path of the unix socket is missing"),
            ("unix://host/path", "a unix socket has no host"),
            ("unix:/a?db=x", "the database must be a number"),
            ("unix:/a?hunter2=1", "unknown query parameter"),
        ];
        for (text, expected) in table {
            let reason = reason(text);
            assert!(reason.contains(expected), "{text}: {reason}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in any::<String>()) {
            let _ = text.parse::<ConnectOptions>();
        }

        #[test]
        fn text_near_a_url_never_panics(
            text in "(redis|rediss|unix|redis-cluster|redis-sentinel):(//)?[a-z0-9:@/?#,%&=\\[\\].\u{e9}-]{0,24}",
        ) {
            let _ = text.parse::<ConnectOptions>();
        }

        #[test]
        fn displayed_address_reads_back(host in "[a-z][a-z0-9-]{0,9}", port in 1_u16.., tls in any::<bool>()) {
            let address = if tls { Address::Tls { host, port } } else { Address::Tcp { host, port } };
            let topology = Topology::Single(address);
            let options = ConnectOptions::of(topology.clone());
            prop_assert_eq!(read(&options.to_string()).topology, topology);
        }

        #[test]
        fn any_login_survives_encoding(user in "\\PC{1,9}", password in any::<String>()) {
            use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
            let encode = |text| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
            let text = format!("redis://{}:{}@h", encode(&user), encode(&password));
            let options = read(&text);
            prop_assert_eq!(options.username.as_deref(), Some(user.as_str()));
            prop_assert_eq!(options.exposed_password().unwrap_or_default(), password);
        }
    }
}
