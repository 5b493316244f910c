//! The transport of fred against real servers.

use delayline_core::ErrorKind;
use delayline_driver_testkit::{heals, increment, transport_cases};
use delayline_fred::{FredDriver, FredTransport};
use delayline_test_server::Server;
use fred::types::Builder;
use fred::types::config::Config;

transport_cases!(FredTransport);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ready_client_is_enough() {
    let server = Server::builder().tcp().password("pw").start();
    for resp in ["", "?version=resp3"] {
        let url = format!("{}{resp}", server.url_with_login("", "pw"));
        let client = Builder::from_config(Config::from_url(&url).unwrap()).build().unwrap();
        let driver = FredDriver::from_client(&client).unwrap();
        let transport = FredTransport::over(driver).await.unwrap();
        assert!(increment(&transport).await.is_ok());
        server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
        heals(&transport).await;
        assert!(!format!("{transport:?}").contains("pw"));
    }
}

#[tokio::test]
async fn client_for_a_cluster_is_refused() {
    let config = Config::from_url("redis-cluster://127.0.0.1:1").unwrap();
    let client = Builder::from_config(config).build().unwrap();
    let error = FredDriver::from_client(&client).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
}
