//! The driver over redis-rs against real servers.

use delayline_core::ErrorKind;
use delayline_driver_testkit::{heals, increment};
use delayline_test_server::Server;

delayline_driver_testkit::driver_cases!(delayline_redis::RedisTransport);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ready_client_is_enough() {
    let server = Server::builder().tcp().password("pw").start();
    for resp in ["", "?protocol=resp3"] {
        let client =
            redis::Client::open(format!("{}{resp}", server.url_with_login("", "pw"))).unwrap();
        let transport = delayline_redis::transport(&client).await.unwrap();
        assert!(increment(&*transport).await.is_ok());
        server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
        heals(&*transport).await;
        assert!(!format!("{transport:?}").contains("pw"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_of_a_ready_client_have_their_kind() {
    let server = Server::builder().tcp().password("right").start();
    let kind = async |url: String| {
        let client = redis::Client::open(url).unwrap();
        delayline_redis::transport(&client).await.unwrap_err().kind().clone()
    };
    assert_eq!(kind(server.url()).await, ErrorKind::Authentication);
    let url = server.url_with_login("", "wrong");
    assert_eq!(kind(url.clone()).await, ErrorKind::Authentication);
    assert_eq!(kind(format!("{url}/?protocol=resp3")).await, ErrorKind::Authentication);
    let missing = format!("unix:{}.missing", server.unix_path().display());
    assert_eq!(kind(missing).await, ErrorKind::Unreachable);
    server.command(&["CONFIG", "SET", "requirepass", ""]);
    let none = format!("{}/9999", server.url());
    assert!(matches!(kind(none).await, ErrorKind::Unsupported(_)));
    assert_eq!(kind(server.url_with_login("", "unasked")).await, ErrorKind::Authentication);
    let rules = ["ACL", "SETUSER", "alice", "on", ">pw", "~*", "+@all", "-select"];
    server.command(&rules);
    let another = format!("{}/1", server.url_with_login("alice", "pw"));
    assert_eq!(kind(another).await, ErrorKind::PermissionDenied);
}
