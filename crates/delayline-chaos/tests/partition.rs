//! Servers that do not reach each other, under the load of both drivers: a primary with the
//! minority, a primary whose packets are lost, a slow link. Where network namespaces are not
//! permitted, the tests say so and are skipped, or fail if `DELAYLINE_NEEDS_NETWORK` is set.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

use std::error::Error;
use std::io::Write as _;

use delayline_chaos::topology::{Fault, Kind, Stage};
use delayline_test_server::Network;

/// Writes past the capture of a test's output, so that a test that passes is heard, too.
fn say_skipped(what: &str) {
    std::io::stderr().write_all(format!("skipped: {what}\n").as_bytes()).unwrap();
}

/// Plays the faults one after the other, and judges the results.
async fn suffer(kind: Kind, faults: &[Fault]) {
    let network = match Network::start() {
        Ok(network) => network,
        Err(error) => {
            let is_needed = std::env::var_os("DELAYLINE_NEEDS_NETWORK").is_some();
            assert!(!is_needed, "no network: {error}: {:?}", error.source());
            say_skipped(&format!("{kind} {faults:?}: {error}: {:?}", error.source()));
            return;
        }
    };
    let chance = fastrand::Rng::with_seed(29);
    let mut stage = Stage::start_in(Some(network), kind, chance).await.unwrap();
    let possible = stage.faults();
    for fault in faults {
        if !possible.contains(fault) {
            say_skipped(&format!("{kind} {fault:?}"));
            continue;
        }
        stage.calm().await;
        let struck = stage.strike(*fault).await;
        let struck = struck.unwrap_or_else(|error| panic!("{fault:?}: {error:#}"));
        assert!(struck.is_felt, "no call has felt {fault:?}");
        println!("{kind} {fault:?}: {struck:?}");
    }
    stage.calm().await;
    let seen = stage.finish().await.unwrap_or_else(|error| panic!("{error:#}"));
    println!("{kind} {faults:?}: {seen:?}");
    assert!(seen.acknowledged > 100 && seen.acked > 50, "too little load: {seen:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_of_a_cluster_is_slow_or_cut_off() {
    suffer(Kind::Cluster, &[Fault::SlowDown, Fault::Part, Fault::Mute]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_is_slow_or_cut_off_with_one_sentinel() {
    suffer(Kind::Sentinel, &[Fault::SlowDown, Fault::Part]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_do_not_hear_a_primary_that_clients_reach() {
    suffer(Kind::Sentinel, &[Fault::Mute]).await;
}
