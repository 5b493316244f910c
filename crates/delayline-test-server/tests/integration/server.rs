//! Servers start, stop, restart and refuse as the other tests rely on.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, SystemTime};

use delayline_test_server::{Server, StartError};

#[test]
fn many_start_at_once_on_ports_of_their_own() {
    let start = || Server::builder().tcp().start();
    let threads: Vec<_> = (0..8).map(|_| std::thread::spawn(start)).collect();
    let servers: Vec<Server> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    for server in &servers {
        let answer = ask(TcpStream::connect(("127.0.0.1", server.port())).unwrap(), "INFO server");
        assert!(answer.contains(&format!("process_id:{}\r\n", server.pid())), "{answer}");
    }
}

#[test]
fn a_paused_server_accepts_and_says_nothing() {
    let server = Server::builder().tcp().start();
    let mut stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    server.pause();
    stream.write_all(b"PING\r\n").unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    stream.read_exact(&mut [0]).unwrap_err();
    server.resume();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut answer = [0; 7];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"+PONG\r\n");
    // A paused server can be stopped and started too.
    server.pause();
    server.restart();
    server.command(&["PING"]);
}

#[test]
fn a_wrong_directive_is_explained() {
    let error = Server::builder().config("no-such-directive", "1").try_start().err().unwrap();
    let StartError::Exited { log, .. } = &error else { panic!("{error}") };
    assert!(log.contains("no-such-directive"), "{log}");
}

/// Sends one inline command; the first piece of the answer.
fn ask(mut stream: impl Read + Write, command: &str) -> String {
    stream.write_all(format!("{command}\r\n").as_bytes()).unwrap();
    let mut answer = vec![0; 64 * 1024];
    let length = stream.read(&mut answer).unwrap();
    answer.truncate(length);
    String::from_utf8(answer).unwrap()
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
