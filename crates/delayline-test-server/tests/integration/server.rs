//! Servers start, stop, restart and refuse as the other tests rely on.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::SystemTime;

use delayline_test_server::{Certificate, Reply, Server, StartError, foreign_ca_pem};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

#[test]
fn starts_on_a_unix_socket_only_and_is_gone_after_drop() {
    let server = Server::start();
    let path = server.unix_path();
    assert_eq!(server.url(), format!("unix:{}", path.display()));
    assert!(path.as_os_str().len() < 104);
    assert_eq!(ask(UnixStream::connect(&path).unwrap(), "PING"), "+PONG\r\n");
    assert_eq!(server.info("server", "tcp_port"), "0");
    drop(server);
    assert!(!path.exists());
}

#[test]
fn data_outlive_the_server_in_a_given_directory() {
    let folder = tempfile::tempdir().unwrap();
    let start = || Server::builder().dir(folder.path()).append_only("everysec").start();
    let server = start();
    server.command(&["SET", "k", "v"]);
    server.stop_gracefully();
    drop(server);
    assert_eq!(start().command(&["EXISTS", "k"]), Reply::Int(1));
}

#[test]
fn a_wrong_directive_is_explained() {
    let error = Server::builder().config("no-such-directive", "1").try_start().err().unwrap();
    let StartError::Exited { log, .. } = &error else { panic!("{error}") };
    assert!(log.contains("no-such-directive"), "{log}");
}

#[test]
fn tls_serves_those_who_trust_its_authority_and_only_them() {
    let server = Server::builder().tls().start();
    assert!(server.url().starts_with("rediss://localhost:"));
    assert_eq!(ask_tls(&server, "localhost", server.ca_pem()).unwrap(), "+PONG\r\n");
    assert_eq!(ask_tls(&server, "127.0.0.1", server.ca_pem()).unwrap(), "+PONG\r\n");
    assert_refused(ask_tls(&server, "localhost", &foreign_ca_pem()), "UnknownIssuer");
    assert_refused(ask_tls(&server, "example.org", server.ca_pem()), "NotValidForName");
    server.restart();
    ask_tls(&server, "localhost", server.ca_pem()).unwrap();
}

#[test]
fn bad_certificates_are_bad_for_the_stated_reason() {
    let expired = Server::builder().tls_with(Certificate::Expired).start();
    assert_refused(ask_tls(&expired, "localhost", expired.ca_pem()), "Expired");
    let other = Server::builder().tls_with(Certificate::WrongHost).start();
    assert_refused(ask_tls(&other, "localhost", other.ca_pem()), "NotValidForName");
}

/// Sends one inline command; the first piece of the answer.
fn ask(mut stream: impl Read + Write, command: &str) -> String {
    try_ask(&mut stream, command).unwrap()
}

fn try_ask(stream: &mut (impl Read + Write), command: &str) -> std::io::Result<String> {
    stream.write_all(format!("{command}\r\n").as_bytes())?;
    let mut answer = vec![0; 64 * 1024];
    let length = stream.read(&mut answer)?;
    answer.truncate(length);
    Ok(String::from_utf8(answer).unwrap())
}

fn ask_tls(server: &Server, name: &str, ca_pem: &str) -> std::io::Result<String> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca_pem.as_bytes()).unwrap()).unwrap();
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let client = ClientConnection::new(Arc::new(config), name).unwrap();
    let stream = TcpStream::connect(("127.0.0.1", server.port()))?;
    try_ask(&mut StreamOwned::new(client, stream), "PING")
}

fn assert_refused(answer: std::io::Result<String>, reason: &str) {
    let error = format!("{:?}", answer.unwrap_err());
    assert!(error.contains(reason), "{error}");
}

#[test]
fn a_server_with_a_clock_of_its_own_goes_by_it() {
    let server = Server::builder().own_clock().start();
    let time = || {
        let (seconds, _): (i64, i64) = redis::from_redis_value(server.command(&["TIME"])).unwrap();
        seconds
    };
    let machine =
        i64::try_from(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs())
            .unwrap();
    assert!((0..60).contains(&(time() - machine)));
    for step_ms in [86_400_000, -86_400_000, 4_102_444_800_000 - machine * 1_000, -machine * 1_000]
    {
        server.set_clock_step(step_ms);
        assert!((0..60).contains(&(time() - machine - step_ms / 1_000)), "{step_ms}");
    }
    server.set_clock_step(1_500);
    server.restart();
    assert!((1..60).contains(&(time() - machine)));
}

#[test]
fn another_program_may_run_the_server() {
    let runner = ["sh", "-c", r#"touch it-ran; exec "$0" "$@""#];
    let server = Server::builder().runner(&runner).start();
    assert!(server.data_dir().join("it-ran").exists());
    let error = Server::builder().runner(&["/no/such/program"]).try_start().err().unwrap();
    assert!(matches!(error, StartError::Io { .. }), "{error}");
}
