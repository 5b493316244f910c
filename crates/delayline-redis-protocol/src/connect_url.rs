//! Reads [`ConnectOptions`] from a URL.

use std::path::PathBuf;
use std::str::FromStr;

use delayline_core::Violation;
use percent_encoding::percent_decode_str;
use url::{ParseError, Url};

use crate::{Address, ConnectOptions, Resp};

const DEFAULT_PORT: u16 = 6379;
const EXPECTED: &str = "it must begin with redis://, rediss:// or unix:";

/// Reads `redis://[USER[:PASSWORD]@]HOST[:PORT][/DB]`, the same with `rediss:` (TLS), or `unix:PATH`, with the
/// query parameter `protocol=resp2|resp3`, and for a unix socket also `db`, `user` and `password`.
///
/// Without PORT it is 6379. Reserved characters in a user name or password are percent-encoded, as
/// in every URL; the path of a unix socket is taken literally, up to a `?`. The error never repeats
/// the text, which may hold a password.
impl FromStr for ConnectOptions {
    type Err = Violation;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_prefix("unix:") {
            Some(rest) => unix(rest),
            None => tcp(text),
        }
    }
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

fn tcp(text: &str) -> Result<ConnectOptions, Violation> {
    let Some((scheme, _)) = text.split_once("://") else {
        return Err(malformed(EXPECTED));
    };
    if scheme != "redis" && scheme != "rediss" {
        return Err(unknown_scheme(scheme));
    }
    let url = Url::parse(text).map_err(unreadable)?;
    if url.fragment().is_some() {
        return Err(malformed("a # in a user name or password must be written %23"));
    }
    let address = address(&url, scheme == "rediss")?;
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

fn address(url: &Url, tls: bool) -> Result<Address, Violation> {
    let host = url.host_str().filter(|host| !host.is_empty());
    let host = host.ok_or_else(|| malformed("the host is missing"))?;
    // What needed encoding can't be a host name.
    if host.contains('%') {
        return Err(malformed("the host is not a host name or address"));
    }
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let port = url.port().unwrap_or(DEFAULT_PORT);
    if port == 0 {
        return Err(malformed("the port must be from 1 to 65535"));
    }
    Ok(if tls { Address::Tls { host, port } } else { Address::Tcp { host, port } })
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
        return Err(malformed("a query parameter stands twice"));
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
    malformed(format!("an unknown query parameter; known here: {known}"))
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

    fn tcp_address(host: &str, port: u16) -> Address {
        Address::Tcp { host: host.to_owned(), port }
    }

    #[test]
    fn host_alone_takes_the_defaults() {
        let options = read("redis://localhost");
        assert_eq!(options.address, tcp_address("localhost", 6379));
        assert_eq!((options.username.as_deref(), options.exposed_password()), (None, None));
        assert_eq!((options.database, options.resp), (0, Resp::V2));
        assert_eq!(read("redis://localhost/").database, 0);
    }

    #[test]
    fn every_part_is_read() {
        let options = read("rediss://alice:p%40ss%2Fw%3A%23@db.example:6380/5?protocol=resp3");
        assert_eq!(options.address, Address::Tls { host: "db.example".into(), port: 6380 });
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
    fn plus_is_a_plus() {
        assert_eq!(read("redis://:a+b@h").exposed_password(), Some("a+b"));
        assert_eq!(read("unix:/s?password=a+b%20c").exposed_password(), Some("a+b c"));
    }

    #[test]
    fn addresses_of_version_6_lose_their_brackets() {
        assert_eq!(read("redis://[::1]:7000").address, tcp_address("::1", 7000));
        assert_eq!(read("redis://[::1]:7000").to_string(), "redis://[::1]:7000");
    }

    #[test]
    fn unix_path_is_literal() {
        for text in ["unix:/a/b.sock", "unix:///a/b.sock"] {
            assert_eq!(read(text).address, Address::Unix("/a/b.sock".into()));
        }
        assert_eq!(read("unix:rel/b%20c#d").address, Address::Unix("rel/b%20c#d".into()));
        let options = read("unix:/a?db=1&user=al%20ice&password=p%26w&protocol=resp3");
        assert_eq!(options.address, Address::Unix("/a".into()));
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
            ("redis://u:12?hunter2@h", "an unknown query parameter; known here: protocol"),
            ("redis://h?db=1", "an unknown query parameter"),
            ("redis://h?protocol=hunter2", "the protocol must be resp2 or resp3"),
            ("redis://h?protocol=resp3&protocol=resp2", "stands twice"),
            ("redis://h%20i", "the host is not"),
            ("redis://:%ff@h", "not UTF-8"),
            ("redis://[::1", "the host is not a valid address"),
            ("unix:", "the path of the unix socket is missing"),
            ("unix:?db=1", "the path of the unix socket is missing"),
            ("unix://host/path", "a unix socket has no host"),
            ("unix:/a?db=x", "the database must be a number"),
            ("unix:/a?hunter2=1", "an unknown query parameter"),
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
            text in "(redis|rediss|unix):(//)?[a-z0-9:@/?#%&=\\[\\].\u{e9}-]{0,24}",
        ) {
            let _ = text.parse::<ConnectOptions>();
        }

        #[test]
        fn displayed_address_reads_back(host in "[a-z][a-z0-9-]{0,9}", port in 1_u16.., tls in any::<bool>()) {
            let address = if tls { Address::Tls { host, port } } else { Address::Tcp { host, port } };
            let options = ConnectOptions::new(address.clone());
            prop_assert_eq!(read(&options.to_string()).address, address);
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
