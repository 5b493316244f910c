use proptest::prelude::*;
use secrecy::ExposeSecret;

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
    assert_eq!((options.username.as_deref(), options.exposed_password()), (None, Some("hunter2")));
    let options = read("redis://alice@h");
    assert_eq!((options.username.as_deref(), options.exposed_password()), (Some("alice"), None));
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
fn schemes_are_read_as_other_libraries_write_them() {
    for (ours, theirs) in [
        ("redis://h/3", &["REDIS://h/3", "valkey://h/3", "redis://h/3/", "redis://h?db=3"][..]),
        ("rediss://h", &["valkeys://h", "Rediss://h", "redis+ssl://h", "valkey+tls://h"]),
        ("redis://u:p@h", &["redis://u@h?password=p", "redis://h?username=u&pass=p"]),
        ("redis://h?protocol=resp3", &["redis://h?protocol=3"]),
        ("redis-cluster://a,b:7", &["valkey-cluster://a,b:7", "redis+cluster://a?node=b:7"]),
        ("rediss-cluster://a", &["rediss+cluster://a", "VALKEYS-CLUSTER://a"]),
        (
            "redis-sentinel://u:p@a,b:7/s/2",
            &[
                "redis+sentinel://u:p@a,b:7/s/2",
                "valkey-sentinel://u:p@a/2?sentinelServiceName=s&node=b:7",
                "redis-sentinel://u:p@a,b:7/2?sentinelMasterId=s",
            ],
        ),
        ("rediss-sentinel://a/s", &["rediss+sentinel://a/s", "valkeys+sentinel://a/s"]),
        (
            "unix:/a?db=2&user=u&password=p",
            &[
                "redis+unix:///a?db=2&user=u&pass=p",
                "redis+socket:///a?virtual_host=2&username=u&password=p",
                "valkey+unix://u:p@/a?db=2",
                "redis-socket://u@/a?database=2&password=p",
                "UNIX:///a?db=2&user=u&password=p",
            ],
        ),
    ] {
        let parts = |url: &str| {
            let ConnectOptions { topology, username, database, resp, .. } = read(url);
            (topology, username, read(url).exposed_password().map(str::to_owned), database, resp)
        };
        for url in theirs {
            assert_eq!(parts(url), parts(ours), "{url}");
            assert!(ConnectOptions::has_scheme(url), "{url}");
        }
    }
    let options = read("redis+sentinel://a/s?sentinel_username=u&sentinel_password=p%40");
    assert_eq!(options.sentinel_username.as_deref(), Some("u"));
    let password = options.sentinel_password.as_ref().map(ExposeSecret::expose_secret);
    assert_eq!((password, options.exposed_password()), (Some("p@"), None));
    assert!(!ConnectOptions::has_scheme("file:/a") && !ConnectOptions::has_scheme("redis"));
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
        ("//u:hunter2@h", "\"(not shown)\" is not valid: it must begin with redis://"),
        ("//hunter2@h", "\"(not shown)\" is not valid: it must begin with redis://"),
        ("/a?password=hunter2", "\"/a?...\" is not valid: it must begin with redis://"),
        ("", "it must begin with redis://"),
        ("redis://", "the host is missing"),
        ("redis:///1", "the host is missing"),
        ("redis://:hunter2@", "the host is missing"),
        ("redis://h:0", "the port must be"),
        ("redis://h:65536", "\"redis://h:65536\" is not valid: the port must be"),
        ("redis://u:hunter2/x@h", "\"redis://***@h\" is not valid: the port must be"),
        ("redis://u:hunter2", "the port must be"),
        ("redis://u:12/hunter2@h", "the database must be a number"),
        ("redis://h/-1", "the database must be a number"),
        ("redis://h/1/2", "the database must be a number"),
        ("redis://h/4294967296", "the database must be a number"),
        ("redis://u:12#hunter2@h", "must be written %23"),
        ("redis://u:12?hunter2@h", "must be written %3F"),
        ("redis://u:12/hunter2@h", "must be written %2F"),
        ("redis://h?dbb=hunter2", "\"redis://h?...\" is not valid: unknown query parameter dbb"),
        ("redis://h?hunter2", "unknown query parameter; supported here: protocol, db"),
        ("redis://h/1?db=1", "the query repeats"),
        ("redis://:hunter2@h?password=x", "\"redis://***@h?...\" is not valid: the query"),
        ("redis://h?node=b", "unknown query parameter node"),
        ("redis://a,b", "several hosts need redis-cluster://"),
        ("redis://h?user=u:hunter2", "must be written %3A"),
        ("redis://h/1:hunter2", "the database must be a number"),
        ("redis:h", "write // between"),
        ("redis:u:hunter2@h", "write // between"),
        ("redis+cluster+sentinel://h", "it must begin with redis://"),
        ("rediss+tls://h", "it must begin with redis://"),
        ("sentinel://h/s", "\"sentinel\" is not valid: it must begin with redis://"),
        ("rediss://:hunter2@h/0#insecure", "\"rediss://***@h/0#...\" is not valid: certificates"),
        ("rediss://:hunter2@h/0#insecure", "always verified: remove #insecure, and"),
        ("redis://h?ssl=true", "whether TLS is used: write rediss, and remove ssl"),
        ("rediss://h?ssl_cert_reqs=none", "always verified: remove ssl_cert_reqs, and"),
        ("redis://h#hunter2", "no part behind a #"),
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
        ("redis-sentinel://a/s?service_name=t", "the database must be a number"),
        ("redis-sentinel://a/s?sentinelPassword=b&hunter2=c", "unknown query parameter;"),
        ("redis-cluster://a?node=u:hunter2@b", "belong before the first host"),
        ("redis-sentinel://a/s?node=a", "a host appears more than once"),
        ("unix:", "the path of the unix socket is missing"),
        ("unix:?db=1", "the path of the unix socket is missing"),
        ("unix://host/path", "a unix socket has no host"),
        ("unix:/a?db=x", "the database must be a number"),
        ("unix:/a?hunter2", "\"unix:/a?...\" is not valid: unknown query parameter"),
        ("unix://u:hunter2@", "a unix socket has no host"),
        ("rediss+unix:/a", "a unix socket is not encrypted"),
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
    fn a_password_is_not_shown_however_it_is_written(
        url in "((redis|redis-cluster|redis-sentinel|http):(//)?|(unix|file)://|//?)(u?:)?",
        password in "[!-~]{9,12}",
        rest in "(@(h|h:6379x|a,b))?(/x/y)?(\\?[a-z]=1)?",
    ) {
        let in_login = format!("{url}{password}@h{rest}");
        let in_query = format!("{url}h{rest}?password={password}");
        for url in [in_login, in_query] {
            prop_assert!(!redacted(&url).contains(&password), "{} {}", url, redacted(&url));
            if let Err(error) = url.parse::<ConnectOptions>() {
                prop_assert!(!error.to_string().contains(&password), "{} {}", url, error);
            }
        }
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
