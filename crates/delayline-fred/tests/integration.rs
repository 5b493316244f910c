//! The driver over fred against real servers.

use delayline_core::ErrorKind;
use delayline_driver_testkit::{heals, increment};
use delayline_test_server::Server;
use fred::types::Builder;
use fred::types::config::Config;

delayline_driver_testkit::driver_cases!(delayline_fred::FredTransport);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ready_client_is_enough() {
    let server = Server::builder().tcp().password("pw").start();
    for resp in ["", "?version=resp3"] {
        let url = format!("{}{resp}", server.url_with_login("", "pw"));
        let client = Builder::from_config(Config::from_url(&url).unwrap()).build().unwrap();
        let transport = delayline_fred::transport(&client).await.unwrap();
        assert!(increment(&*transport).await.is_ok());
        server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
        heals(&*transport).await;
        assert!(!format!("{transport:?}").contains("pw"));
    }
}

#[tokio::test]
async fn client_for_several_servers_is_refused() {
    for url in
        ["redis-cluster://127.0.0.1:1", "redis-sentinel://127.0.0.1:1?sentinelServiceName=main"]
    {
        let client = Builder::from_config(Config::from_url(url).unwrap()).build().unwrap();
        let error = delayline_fred::transport(&client).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
        assert!(error.to_string().contains("redis-sentinel://"), "{error}");
    }
}
