//! The proxy drops exactly the configured data.

use std::time::Duration;

use delayline_test_server::proxy::{Fault, Proxy};
use delayline_test_server::{Reply, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

#[tokio::test]
async fn passes_everything_at_first_on_both_kinds_of_socket() {
    let server = Server::start();
    for proxy in [Proxy::start(&server).await.unwrap(), Proxy::start_unix(&server).await.unwrap()] {
        // The driver's own client, and a payload that arrives in many pieces.
        let url = proxy.url().replace("unix:", "unix://");
        let client = redis::Client::open(url).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let payload = vec![b'\r'; 1 << 20];
        let mut pipeline = redis::pipe();
        pipeline.set("k", &payload).ignore().get("k");
        let (echoed,): (Vec<u8>,) = pipeline.query_async(&mut connection).await.unwrap();
        assert_eq!(echoed, payload);
        assert_eq!((proxy.faults(), proxy.connections()), (0, 1));
    }
}

#[tokio::test]
async fn a_cut_before_the_request_executes_nothing() {
    let (server, proxy) = start().await;
    let mut client = connect(&proxy).await;
    proxy.once(Fault::CutBeforeRequest, "INCR");
    assert_eq!(ask(&mut client, "PING").await, "+PONG\r\n");
    assert_eq!(ask(&mut client, "INCR n").await, "");
    assert_eq!(server.command(&["EXISTS", "n"]), Reply::Int(0));
    assert_eq!(ask(&mut connect(&proxy).await, "INCR n").await, ":1\r\n");
    assert_eq!(proxy.faults(), 1);
}

#[tokio::test]
async fn a_cut_after_execution_loses_only_the_reply() {
    let (server, proxy) = start().await;
    proxy.set(Fault::CutAfterExecution);
    for n in 1..=20 {
        assert_eq!(ask(&mut connect(&proxy).await, "INCR n").await, "");
        let expected = Reply::BulkString(n.to_string().into_bytes());
        assert_eq!(server.command(&["GET", "n"]), expected);
    }
    proxy.heal();
    assert_eq!(ask(&mut connect(&proxy).await, "INCR n").await, ":21\r\n");
}

#[tokio::test]
async fn a_cut_hits_one_request_of_a_pipeline() {
    let (server, proxy) = start().await;
    let mut client = connect(&proxy).await;
    proxy.once(Fault::CutBeforeRequest, "b");
    let pipeline = ["INCR a", "INCR b", "INCR c"].map(encoded).concat();
    client.write_all(&pipeline).await.unwrap();
    // An end with a reset is an end.
    let _ = client.read_to_end(&mut Vec::new()).await;
    // Data sent before the cut reaches the server; nothing after it does.
    assert_eq!(server.command(&["EXISTS", "b", "c"]), Reply::Int(0));
}

#[tokio::test]
async fn a_blackhole_holds_requests_until_it_heals() {
    let (server, proxy) = start().await;
    let mut client = connect(&proxy).await;
    proxy.set(Fault::Blackhole);
    client.write_all(&encoded("INCR n")).await.unwrap();
    proxy.wait_for_faults(1).await;
    assert_eq!(server.command(&["EXISTS", "n"]), Reply::Int(0));
    proxy.heal();
    assert_eq!(read(&mut client).await, ":1\r\n");
}

#[tokio::test]
async fn a_single_blackhole_leaves_other_connections_alone() {
    let (_server, proxy) = start().await;
    let (mut dark, mut light) = (connect(&proxy).await, connect(&proxy).await);
    proxy.once(Fault::Blackhole, "");
    dark.write_all(&encoded("PING")).await.unwrap();
    proxy.wait_for_faults(1).await;
    assert_eq!(ask(&mut light, "PING").await, "+PONG\r\n");
    proxy.cut_all();
    assert_eq!(read(&mut dark).await, "");
}

#[tokio::test]
async fn a_delay_delays() {
    let (_server, proxy) = start().await;
    let mut client = connect(&proxy).await;
    let delay = Duration::from_millis(50);
    proxy.once(Fault::Delay(delay), "");
    let start = Instant::now();
    assert_eq!(ask(&mut client, "PING").await, "+PONG\r\n");
    assert!(start.elapsed() >= delay);
}

#[tokio::test]
async fn survives_its_server_and_ends_with_its_handle() {
    let (server, proxy) = start().await;
    let mut client = connect(&proxy).await;
    assert_eq!(ask(&mut client, "PING").await, "+PONG\r\n");
    server.kill();
    assert_eq!(ask(&mut client, "PING").await, "");
    assert_eq!(ask(&mut connect(&proxy).await, "PING").await, "");
    server.restart();
    let mut client = connect(&proxy).await;
    assert_eq!(ask(&mut client, "PING").await, "+PONG\r\n");
    drop(proxy);
    assert_eq!(read(&mut client).await, "");
}

async fn start() -> (Server, Proxy) {
    let server = Server::start();
    let proxy = Proxy::start(&server).await.unwrap();
    (server, proxy)
}

async fn connect(proxy: &Proxy) -> TcpStream {
    TcpStream::connect(proxy.url().strip_prefix("redis://").unwrap()).await.unwrap()
}

fn encoded(command: &str) -> Vec<u8> {
    redis::Cmd::new().arg(command.split(' ').collect::<Vec<_>>()).get_packed_command()
}

/// Sends a command; its answer, empty if the connection ends instead.
async fn ask(client: &mut TcpStream, command: &str) -> String {
    // Fails if the connection has ended already: the answer is empty then.
    let _ = client.write_all(&encoded(command)).await;
    read(client).await
}

async fn read(client: &mut TcpStream) -> String {
    let mut answer = [0; 1024];
    let read = timeout(Duration::from_secs(30), client.read(&mut answer)).await;
    // An end with a reset is an end.
    let length = read.expect("neither an answer nor an end").unwrap_or(0);
    String::from_utf8_lossy(&answer[..length]).into_owned()
}
