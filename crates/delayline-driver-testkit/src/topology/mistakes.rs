//! URLs that do not match their servers: each is reported at once, with advice.

use std::sync::Arc;
use std::time::{Duration, Instant};

use delayline_core::{Error, ErrorClass, ErrorKind};
use delayline_test_server::{Cluster, Reply, Sentinels, Server};
use tokio::task::JoinSet;

use super::{
    Connect, PATIENCE, enqueue, has, is_unsupported, open, options, queue_of, refusal, until,
};

pub async fn cluster_url_at_a_single_server<C: Connect>() {
    let server = Server::builder().tcp().start();
    let url = format!("redis-cluster://127.0.0.1:{}", server.port());
    let error = refusal::<C>(&options(&url), "q").await;
    assert!(is_unsupported(&error), "{error:?}");
    assert!(error.to_string().contains("begins with redis://"), "{error}");
}

pub async fn single_url_at_a_cluster<C: Connect>() {
    let cluster = Cluster::start();
    for node in cluster.nodes() {
        let error = refusal::<C>(&options(&node.url()), "q").await;
        assert!(is_unsupported(&error), "{error:?}");
        assert!(error.to_string().contains("redis-cluster://"), "{error}");
    }
}

pub async fn single_url_at_a_sentinel<C: Connect>() {
    let sentinels = Sentinels::start();
    let error = refusal::<C>(&options(&sentinels.sentinels()[0].url()), "q").await;
    assert!(is_unsupported(&error), "{error:?}");
    assert!(error.to_string().contains("redis-sentinel://"), "{error}");
}

pub async fn sentinel_url_at_a_server<C: Connect>() {
    let server = Server::builder().tcp().start();
    let url = format!("redis-sentinel://127.0.0.1:{}/primary", server.port());
    let error = refusal::<C>(&options(&url), "q").await;
    assert!(is_unsupported(&error), "{error:?}");
    assert!(error.to_string().contains("not a sentinel"), "{error}");
}

pub async fn wrong_service_name<C: Connect>() {
    let sentinels = Sentinels::start();
    let url = sentinels.url().replace("/primary", "/elsewhere");
    let error = refusal::<C>(&options(&url), "q").await;
    assert!(is_unsupported(&error), "{error:?}");
    assert!(error.to_string().contains("elsewhere"), "{error}");
}

pub async fn unreachable_seeds_are_all_named<C: Connect>() {
    // No server listens on these.
    let error = refusal::<C>(&options("redis-cluster://127.0.0.1:1,127.0.0.1:2"), "q").await;
    assert_eq!(error.kind(), &ErrorKind::Unreachable, "{error}");
    assert!(error.detail().contains("127.0.0.1:1") && error.detail().contains("127.0.0.1:2"));
    let url = "redis-sentinel://127.0.0.1:1,127.0.0.1:2/primary";
    let error = refusal::<C>(&options(url), "q").await;
    assert_eq!(error.kind(), &ErrorKind::Unreachable, "{error}");
    assert!(error.detail().contains("127.0.0.1:1") && error.detail().contains("127.0.0.1:2"));
}

pub async fn one_reachable_seed_is_enough<C: Connect>() {
    let cluster = Cluster::start();
    let port = cluster.nodes()[2].port();
    let url = format!("redis-cluster://127.0.0.1:1,127.0.0.1:2,127.0.0.1:{port}");
    let queue = open::<C>(&options(&url), "q").await.unwrap();
    enqueue(&queue, "a").await.unwrap();
}

pub async fn slot_without_an_owner<C: Connect>() {
    let cluster = Cluster::builder().config("cluster-require-full-coverage", "no").start();
    let name = queue_of(&cluster, &cluster.nodes()[0]);
    let slot = cluster.slot(&name).to_string();
    for node in cluster.nodes() {
        node.command(&["CLUSTER", "DELSLOTS", &slot]);
    }
    let error = refusal::<C>(&options(&cluster.url()), &name).await;
    assert_eq!(error.kind(), &ErrorKind::Busy, "{error}");
    assert_eq!(error.class(), ErrorClass::NotExecuted);
}

pub async fn calls_that_a_cluster_refuses_are_not_executed<C: Connect>() {
    let cluster = Cluster::start();
    let [node, witness, lost] = cluster.nodes() else { panic!("three nodes") };
    let name = queue_of(&cluster, node);
    let options = options(&cluster.url_of(&[node, witness]));
    let queue = Arc::new(open::<C>(&options, &name).await.unwrap());
    enqueue(&*queue, "before").await.unwrap();
    // It serves its own slots only while all others are served as well.
    cluster.set_node_timeout(Duration::from_secs(1));
    lost.kill();
    let is_down = || {
        let Reply::BulkString(info) = node.command(&["CLUSTER", "INFO"]) else { return false };
        String::from_utf8_lossy(&info).contains("cluster_state:fail")
    };
    until("the cluster is down", is_down).await;
    let refused = |error: Error| {
        assert_eq!(error.class(), ErrorClass::NotExecuted, "{error}");
        usize::from(error.kind() == &ErrorKind::Busy)
    };
    assert_eq!(refused(enqueue(&*queue, "alone").await.unwrap_err()), 1, "the server says so");
    let mut calls = JoinSet::new();
    for caller in 0..50 {
        let queue = Arc::clone(&queue);
        calls.spawn(async move {
            let mut busy = 0;
            for number in 0..20 {
                let text = format!("{caller}-{number}");
                busy += refused(enqueue(&*queue, &text).await.unwrap_err());
                tokio::task::yield_now().await;
            }
            busy
        });
    }
    assert!(calls.join_all().await.into_iter().sum::<usize>() > 0);
    node.command(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]);
    let begin = Instant::now();
    while let Err(error) = enqueue(&*queue, "after").await {
        refused(error);
        assert!(begin.elapsed() < PATIENCE, "no recovery");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(has(&*queue, "before").await && !has(&*queue, "alone").await);
}

pub async fn database_number_in_a_cluster<C: Connect>() {
    let cluster = Cluster::start();
    let url = format!("{}/5", cluster.url());
    match open::<C>(&options(&url), "q").await {
        // Valkey 9 has several databases in a cluster, if it is configured so.
        Ok(queue) => enqueue(&queue, "a").await.unwrap(),
        Err(error) => assert!(is_unsupported(&error), "{error:?}"),
    }
}

pub async fn password_of_one_node_only<C: Connect>() {
    let cluster = Cluster::start();
    let (node, other) = (&cluster.nodes()[0], &cluster.nodes()[1]);
    let (name, good) = (queue_of(&cluster, node), queue_of(&cluster, other));
    node.command(&["CONFIG", "SET", "requirepass", "only here"]);
    let mut options = options(&cluster.url_of(&[other]));
    options.connect_timeout = Duration::from_secs(5);
    let error = refusal::<C>(&options, &name).await;
    assert_eq!(error.kind(), &ErrorKind::Authentication, "{error}");
    assert!(error.to_string().contains(&node.port().to_string()), "{error}");
    let queue = open::<C>(&options, &good).await.unwrap();
    enqueue(&queue, "a").await.unwrap();
}

pub async fn encrypted_url_at_a_plain_cluster<C: Connect>() {
    let cluster = Cluster::start();
    let url = cluster.url().replace("redis-cluster", "rediss-cluster");
    let error = refusal::<C>(&options(&url), "q").await;
    assert!(matches!(error.kind(), ErrorKind::Tls | ErrorKind::Unreachable), "{error:?}");
}
