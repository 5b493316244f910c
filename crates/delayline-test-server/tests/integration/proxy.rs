//! The proxy drops exactly the configured data.

use std::time::Duration;

use delayline_test_server::proxy::{Fault, Proxy};
use delayline_test_server::{Reply, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

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
async fn a_delay_delays() {
    let (_server, proxy) = start().await;
    let mut client = connect(&proxy).await;
    let delay = Duration::from_millis(50);
    proxy.once(Fault::Delay(delay), "");
    let start = Instant::now();
    assert_eq!(ask(&mut client, "PING").await, "+PONG\r\n");
    assert!(start.elapsed() >= delay);
    assert_eq!((proxy.faults(), proxy.connections()), (1, 1));
    drop(proxy);
    assert_eq!(read(&mut client).await, "", "its connections end with it");
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
