//! What goes wrong before the first call has its kind.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use delayline_core::{Error, ErrorClass, ErrorKind};
use delayline_redis_protocol::{ConnectOptions, Transport};
use delayline_test_server::{Certificate, Server, foreign_ca_pem};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::{Connect, HEALING, PATIENCE, connected, eval, impatient, increment, options, until};

const SECRET: &str = "s3cret-w0rd";

/// The error of an attempt that must fail soon, and without telling a secret.
async fn refusal<C: Connect>(options: &ConnectOptions) -> Error {
    let begin = Instant::now();
    let error = C::connect(options).await.expect_err("it connected");
    assert!(begin.elapsed() < HEALING, "{:?}", begin.elapsed());
    assert_ne!(error.class(), ErrorClass::Ambiguous, "{error}");
    assert!(!format!("{error} {error:?}").contains(SECRET), "{error:?}");
    error
}

async fn listener() -> (TcpListener, String) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = format!("redis://:{SECRET}@{}", listener.local_addr().unwrap());
    (listener, url)
}

pub async fn refused_port_is_unreachable<C: Connect>() {
    // Bound, so that no other process gets the port, but not listening.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let address = socket.local_addr().unwrap();
    for url in [format!("redis://{address}"), format!("rediss://{address}")] {
        let mut options = options(&url);
        options.ca_pem = Some(foreign_ca_pem().into());
        let error = refusal::<C>(&options).await;
        assert_eq!(error.kind(), &ErrorKind::Unreachable, "{error}");
        // It names the address and does not mention TLS, since no server was reached.
        assert!(error.detail().starts_with(&options.to_string()), "{error}");
        assert!(!error.detail().contains("TLS"), "{error}");
    }
}

pub async fn missing_socket_is_unreachable<C: Connect>() {
    let server = Server::start();
    let missing = server.unix_path().with_file_name("missing");
    let error = refusal::<C>(&options(&format!("unix:{}", missing.display()))).await;
    assert_eq!(error.kind(), &ErrorKind::Unreachable, "{error}");
    assert!(error.detail().starts_with(&format!("unix:{}: ", missing.display())), "{error}");
}

/// Systems limit the address of a socket to about 100 bytes.
pub async fn socket_with_a_long_path_is_reached<C: Connect>() {
    let server = Server::start();
    let directory = server.unix_path().with_file_name("d".repeat(200));
    std::fs::create_dir(&directory).unwrap();
    let long = directory.join("redis.sock");
    std::os::unix::fs::symlink(server.unix_path(), &long).unwrap();
    let mut refused = vec![directory.with_file_name("n".repeat(200))];
    if cfg!(target_os = "linux") {
        let transport = connected::<C>(&format!("unix:{}", long.display())).await;
        assert!(increment(&transport).await.is_ok());
    } else {
        refused.push(long);
    }
    for path in refused {
        let error = refusal::<C>(&options(&format!("unix:{}", path.display()))).await;
        assert!(matches!(error.kind(), ErrorKind::Invalid(_)), "{error}");
    }
}

pub async fn unknown_host_is_unreachable<C: Connect>() {
    // Some resolvers take their time.
    let error = refusal::<C>(&impatient("redis://no-such-host.invalid")).await;
    assert_eq!(error.kind(), &ErrorKind::Unreachable, "{error}");
}

/// Where the first address of `localhost` is that of IPv6.
pub async fn silent_address_of_a_host_hides_no_other<C: Connect>() {
    let server = Server::builder().tls().start();
    let address = SocketAddr::from((Ipv6Addr::LOCALHOST, server.port()));
    let silent = async {
        let socket = TcpSocket::new_v6()?;
        socket.bind(address)?;
        let listener = socket.listen(0)?;
        // Fills the queue of the listener, so that the system ignores all further attempts.
        std::io::Result::Ok((listener, TcpStream::connect(address).await?))
    };
    // Some machines have no IPv6.
    let _silent = silent.await;
    let mut options = impatient(&server.url());
    options.ca_pem = Some(server.ca_pem().into());
    let transport = C::connect(&options).await.unwrap();
    assert!(increment(&transport).await.is_ok());
}

pub async fn silent_peer_is_unreachable_in_time<C: Connect>() {
    // The kernel accepts the connection, but the server does not reply.
    let (_listener, url) = listener().await;
    for url in [url.clone(), url.replace("redis:", "rediss:")] {
        let mut options = impatient(&url);
        options.ca_pem = Some(foreign_ca_pem().into());
        let begin = Instant::now();
        let error = refusal::<C>(&options).await;
        assert_eq!(error.kind(), &ErrorKind::Unreachable, "{error}");
        assert!(begin.elapsed() >= super::SHORT * 9 / 10, "{:?}", begin.elapsed());
        other_scheme_is_named(&url, &error);
    }
}

/// A peer that answers whatever comes with these bytes and hangs up.
async fn peer(answer: &'static [u8]) -> String {
    let (listener, url) = listener().await;
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 1024]).await;
            let _ = stream.write_all(answer).await;
        }
    });
    url
}

/// A peer with or without TLS cannot be distinguished from a silent one.
#[track_caller]
fn other_scheme_is_named(url: &str, error: &Error) {
    let other = if url.starts_with("rediss:") { "use redis://" } else { "use rediss://" };
    assert!(error.detail().contains(other), "{url}: {error}");
}

pub async fn peer_that_closes_is_unreachable<C: Connect>() {
    let url = peer(b"").await;
    for url in [url.clone(), url.replace("redis:", "rediss:")] {
        let mut options = options(&url);
        options.ca_pem = Some(foreign_ca_pem().into());
        let error = refusal::<C>(&options).await;
        assert_eq!(error.kind(), &ErrorKind::Unreachable, "{error}");
        other_scheme_is_named(&url, &error);
    }
}

pub async fn peer_that_babbles_is_unreachable<C: Connect>() {
    let url = peer(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
    let error = refusal::<C>(&impatient(&url)).await;
    assert_eq!(error.kind(), &ErrorKind::Unreachable, "{error}");
}

pub async fn wrong_logins_are_refused<C: Connect>() {
    let server = Server::builder().password("right").acl_user("alice on >right ~* +@all").start();
    let mut logins = vec![server.url()];
    for (user, password) in
        [("", SECRET), ("alice", SECRET), ("absent", SECRET), ("default", SECRET), ("alice", "")]
    {
        logins.push(server.url_with_login(user, password));
    }
    for url in logins {
        for protocol in ["resp2", "resp3"] {
            let mark = if url.contains('?') { '&' } else { '?' };
            let error = refusal::<C>(&options(&format!("{url}{mark}protocol={protocol}"))).await;
            assert_eq!(error.kind(), &ErrorKind::Authentication, "{protocol} {error}");
            assert_eq!(error.class(), ErrorClass::Rejected);
        }
    }
    // A password for a server that wants none is most likely meant for another one.
    let open = Server::start();
    let mut alone = options(&open.url());
    alone.username = Some("absent".to_owned());
    let error = refusal::<C>(&alone).await;
    assert_eq!(error.kind(), &ErrorKind::Authentication, "{error}");
    for (user, protocol) in
        [("", "resp2"), ("", "resp3"), ("default", "resp2"), ("default", "resp3")]
    {
        let url = open.url_with_login(user, SECRET);
        let mark = if url.contains('?') { '&' } else { '?' };
        let options = options(&format!("{url}{mark}protocol={protocol}"));
        // Each time.
        for _ in 0..2 {
            let error = refusal::<C>(&options).await;
            assert_eq!(error.kind(), &ErrorKind::Authentication, "{user} {protocol}: {error}");
            assert_eq!(error.class(), ErrorClass::Rejected);
            assert!(error.detail().contains("password"), "{error}");
        }
    }
    let silenced = Server::builder().acl_user("default on nopass ~* +@all -ping").start();
    let error = refusal::<C>(&options(&silenced.url_with_login("", SECRET))).await;
    assert_eq!(error.kind(), &ErrorKind::Authentication, "{error}");
    // Without a password, the user name does no harm.
    let mut default = options(&open.url());
    default.username = Some("default".to_owned());
    C::connect(&default).await.unwrap();
}

pub async fn right_logins_work<C: Connect>() {
    let password = "ri ght/?#@:%+&=\"'\\\u{e9}";
    let server = Server::builder()
        .password(password)
        .tcp()
        .acl_user("alice on >pw ~* +@all")
        .acl_user("guest on nopass ~* +@all")
        .start();
    let on_a_socket = Server::builder().password(password).start();
    let mut guest = options(&server.url());
    guest.username = Some("guest".to_owned());
    let logins = [
        options(&on_a_socket.url_with_login("", password)),
        options(&server.url_with_login("", password)),
        options(&server.url_with_login("default", password)),
        options(&server.url_with_login("alice", "pw")),
        guest,
    ];
    for mut login in logins {
        for resp in [delayline_redis_protocol::Resp::V2, delayline_redis_protocol::Resp::V3] {
            login.resp = resp;
            let transport = C::connect(&login).await.unwrap();
            assert!(increment(&transport).await.is_ok());
        }
    }
}

pub async fn wrong_certificates_are_refused<C: Connect>() {
    let good = Server::builder().tls().start();
    let mut stranger = options(&good.url_with_login("", SECRET));
    stranger.ca_pem = Some(foreign_ca_pem().into());
    let mut cases = vec![stranger];
    let bad = [Certificate::Expired, Certificate::WrongHost]
        .map(|certificate| Server::builder().tls_with(certificate).start());
    for server in &bad {
        let mut options = options(&server.url());
        options.ca_pem = Some(server.ca_pem().into());
        cases.push(options);
    }
    // The public authorities don't know it either.
    cases.push(options(&good.url()));
    let mut unreadable = options(&good.url());
    unreadable.ca_pem = Some(SECRET.into());
    cases.push(unreadable);
    for options in cases {
        let error = refusal::<C>(&options).await;
        assert_eq!(error.kind(), &ErrorKind::Tls, "{error}");
        assert_eq!(error.class(), ErrorClass::Rejected);
    }
}

pub async fn missing_client_certificate_is_told<C: Connect>() {
    let server = Server::builder().tls().config("tls-auth-clients", "yes").start();
    let mut options = options(&server.url());
    options.ca_pem = Some(server.ca_pem().into());
    let error = refusal::<C>(&options).await;
    assert_eq!(error.kind(), &ErrorKind::Tls, "{error}");
    assert!(error.detail().contains("client certificate"), "{error}");
}

pub async fn tls_works_with_its_authority<C: Connect>() {
    let server = Server::builder().tls().password("pw").start();
    let by_name = server.url_with_login("", "pw");
    for url in [by_name.clone(), by_name.replace("localhost", "127.0.0.1")] {
        let mut options = options(&url);
        options.ca_pem = Some(server.ca_pem().into());
        let transport = C::connect(&options).await.unwrap();
        assert!(increment(&transport).await.is_ok());
        assert!(!transport.wait(&"bell".into(), Duration::from_millis(20)).await.unwrap());
    }
}

pub async fn plain_client_on_tls_port_fails<C: Connect>() {
    let server = Server::builder().tls().start();
    let error = refusal::<C>(&impatient(&format!("redis://127.0.0.1:{}", server.port()))).await;
    assert_eq!(error.kind(), &ErrorKind::Unreachable, "{error}");
}

pub async fn tls_client_on_plain_port_fails<C: Connect>() {
    let server = Server::builder().tcp().start();
    let mut options = impatient(&format!("rediss://127.0.0.1:{}", server.port()));
    options.ca_pem = Some(foreign_ca_pem().into());
    // Depends on whether the server finds an end of line in the first packet.
    let error = refusal::<C>(&options).await;
    assert!(matches!(error.kind(), ErrorKind::Tls | ErrorKind::Unreachable), "{error}");
}

pub async fn database_is_selected<C: Connect>() {
    let server = Server::start();
    let transport = connected::<C>(&format!("{}?db=3", server.url())).await;
    assert!(increment(&transport).await.is_ok());
    let keyspace = server.command(&["INFO", "keyspace"]);
    assert!(format!("{keyspace:?}").contains("db3:"), "{keyspace:?}");
    assert!(transport.wait(&"bell".into(), Duration::from_millis(20)).await.is_ok());
}

pub async fn missing_database_is_refused<C: Connect>() {
    let server = Server::start();
    for number in ["16", "255", "4294967295"] {
        let error = refusal::<C>(&options(&format!("{}?db={number}", server.url()))).await;
        assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
    }
}

pub async fn user_without_ping_connects<C: Connect>() {
    let rights = "~* -@all +eval +evalsha +incr";
    let server = Server::builder()
        .acl_user(&format!("worker on >pw {rights}"))
        .acl_user(&format!("default on nopass {rights}"))
        .start();
    let mut default = options(&server.url());
    default.username = Some("default".to_owned());
    for login in [options(&server.url_with_login("worker", "pw")), default] {
        let transport = C::connect(&login).await.unwrap();
        assert!(increment(&transport).await.is_ok());
    }
}

pub async fn full_server_is_told<C: Connect>() {
    let server = Server::start();
    let first = connected::<C>(&server.url()).await;
    server.command(&["CONFIG", "SET", "maxclients", "1"]);
    until("a full server", || server.try_command(&["PING"]).is_err()).await;
    let error = refusal::<C>(&options(&server.url())).await;
    // It says so and hangs up; whether that is read depends on who is first.
    assert!(matches!(error.kind(), ErrorKind::Overloaded | ErrorKind::Unreachable), "{error}");
    assert!(increment(&first).await.is_ok());
}

pub async fn loading_server_is_not_taken<C: Connect>() {
    let url = peer(b"-LOADING Redis is loading the dataset in memory\r\n").await;
    let error = refusal::<C>(&options(&url)).await;
    assert_eq!(error.kind(), &ErrorKind::Busy, "{error}");
}

pub async fn refusals_are_told_in_the_words_of_the_server<C: Connect>() {
    let url = peer(b"-DENIED Redis is running in protected mode. No answer\r\n").await;
    let error = refusal::<C>(&options(&url)).await;
    assert_eq!(error.kind(), &ErrorKind::Authentication, "{error}");
    assert!(error.detail().ends_with("protected mode. No answer"), "{error}");
    let url = peer(b"-UNHEARDOF Every answer is lost\r\n").await;
    let error = refusal::<C>(&options(&url)).await;
    assert_eq!(error.kind(), &ErrorKind::Unreachable, "{error}");
    // Without a word about TLS.
    assert!(error.detail().ends_with("UNHEARDOF Every answer is lost"), "{error}");
}

pub async fn server_that_runs_a_script_is_not_taken<C: Connect>() {
    let server = Server::builder().config("lua-time-limit", "1").start();
    let first = std::sync::Arc::new(connected::<C>(&server.url()).await);
    let caller = std::sync::Arc::clone(&first);
    let script = tokio::spawn(async move {
        let _ = eval(&*caller, "while true do end", &[]).await;
    });
    until("a busy server", || server.try_command(&["PING"]).is_err()).await;
    let error = refusal::<C>(&options(&server.url())).await;
    assert_eq!(error.kind(), &ErrorKind::Busy, "{error}");
    server.command(&["SCRIPT", "KILL"]);
    tokio::time::timeout(PATIENCE, script).await.unwrap().unwrap();
}

pub async fn debug_shows_no_secret<C: Connect>() {
    let server = Server::builder().tcp().password(SECRET).start();
    let transport = connected::<C>(&server.url_with_login("default", SECRET)).await;
    let debug = format!("{transport:?} {transport:#?}");
    assert!(!debug.contains(SECRET), "{debug}");
    assert!(debug.contains(&server.port().to_string()), "{debug}");
}
