//! Queues over clients that a program already has.

use std::sync::Arc;
use std::time::Duration;

use delayline::backend::Transport;
use delayline::{Connect, Error, ErrorKind, Job, Queue, Worker};
use delayline_test_server::{Cluster, Sentinels, Server};
use fred::types::Builder;
use fred::types::config::Config;
use tokio::sync::mpsc;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug)]
enum Client {
    Redis,
    Fred,
}

impl Client {
    const ALL: [Self; 2] = [Self::Redis, Self::Fred];

    async fn transport(self, url: &str) -> Result<Arc<dyn Transport>, Error> {
        Ok(match self {
            Self::Redis => delayline_redis::transport(&redis::Client::open(url).unwrap()).await?,
            Self::Fred => {
                let config = Config::from_url(url).unwrap();
                let client = Builder::from_config(config).build().unwrap();
                delayline_fred::transport(&client).await?
            }
        })
    }

    async fn queue(self, url: &str) -> Result<Queue<u64>, Error> {
        Connect::over(self.transport(url).await?).connect().await?.queue("orders").await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ready_client_sends_works_and_wakes() {
    for client in Client::ALL {
        let server = Server::builder().tcp().password("hunter2").start();
        let url = server.url_with_login("", "hunter2");
        let queue = client.queue(&url).await.unwrap();
        let (handled, mut seen) = mpsc::unbounded_channel();
        let worker = Worker::builder(queue.clone()).build().unwrap();
        let handle = worker.handle();
        let running = tokio::spawn(worker.run(move |job: Job<u64>| {
            handled.send(*job.payload()).unwrap();
            async { Ok::<(), &str>(()) }
        }));
        for n in 0..10 {
            queue.send(&n).await.unwrap();
            assert_eq!(timeout(PATIENCE, seen.recv()).await.unwrap(), Some(n), "{client:?}");
            // New connections log in again.
            server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
        }
        handle.stop(PATIENCE);
        let summary = running.await.unwrap();
        assert_eq!(summary.acked, 10, "{client:?}: {summary:?}");

        let connect = Connect::over(client.transport(&url).await.unwrap());
        let connection = connect.clone().connect().await.unwrap();
        assert_eq!(connection.queues().await.unwrap(), ["orders".parse().unwrap()]);
        assert!(connection.delete_queue("orders").await.unwrap().existed, "{client:?}");
        for shown in [format!("{connect} {connect:?}"), format!("{connection:?}")] {
            assert!(!shown.contains("hunter2"), "{shown}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ready_client_is_refused_a_server_that_evicts() {
    let server = Server::builder().tcp().start();
    server.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    for client in Client::ALL {
        let error = client.queue(&server.url()).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Evicting { .. }), "{client:?}: {error}");
        let transport = client.transport(&server.url()).await.unwrap();
        let connection = Connect::over(transport).allow_eviction(true).connect().await.unwrap();
        connection.queue::<u64>("orders").await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_one_node_or_of_a_sentinel_is_refused() {
    let (cluster, sentinels) = (Cluster::start(), Sentinels::start());
    for client in Client::ALL {
        for (server, advice) in [
            (&cluster.nodes()[0], "redis-cluster://"),
            (&sentinels.sentinels()[0], "redis-sentinel://"),
        ] {
            let error = client.queue(&server.url()).await.unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{client:?}: {error}");
            assert!(error.to_string().contains(advice), "{client:?}: {error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn options_of_addresses_do_not_fit_a_ready_client() {
    let server = Server::builder().tcp().start();
    for client in Client::ALL {
        let connect = Connect::over(client.transport(&server.url()).await.unwrap());
        for misfit in [
            connect.clone().ca_pem(""),
            connect.clone().sentinel_login("", "hunter2"),
            connect.clone().map_address("a:1", "b:2"),
        ] {
            let error = misfit.connect().await.unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Invalid(_)), "{error}");
            assert!(error.to_string().contains("a ready client"), "{error}");
        }
        let error = connect.survey().await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
    }
}
