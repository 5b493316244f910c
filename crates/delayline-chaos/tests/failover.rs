//! One fault after another on a cluster and behind sentinels, under the load of both drivers. It
//! runs only by name, because it takes minutes:
//!
//! ```sh
//! cargo xtask test -p delayline-chaos --test failover -- --test-threads 1 --skip newer
//! ```

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

use delayline_chaos::topology::{Fault, Kind, Seen, Stage, Struck};

/// Plays a fault twice, and judges the results.
async fn suffer(kind: Kind, fault: Fault) -> (Seen, [Struck; 2]) {
    let mut stage = Stage::start(kind, fastrand::Rng::with_seed(7)).await.unwrap();
    assert!(stage.faults().contains(&fault), "this server cannot do that");
    let mut all = [Struck::default(); 2];
    for struck in &mut all {
        stage.calm().await;
        *struck = stage.strike(fault).await.unwrap_or_else(|error| panic!("{error:#}"));
        assert!(struck.is_felt, "it has affected no call");
        assert!(!struck.is_unasked, "failed over by themselves: is the machine too busy?");
        assert!(struck.asked_a_second <= 20.0, "{struck:?}");
    }
    stage.calm().await;
    let seen = stage.finish().await.unwrap_or_else(|error| panic!("{error:#}"));
    println!("{kind} {fault:?}: {seen:?} {all:?}");
    assert!(seen.acknowledged > 100 && seen.acked > 50, "too little load: {seen:?}");
    (seen, all)
}

/// One test for each fault.
macro_rules! faults {
    ($kind:ident, $module:ident: $($name:ident = $fault:ident,)*) => {
        mod $module {
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    suffer(Kind::$kind, Fault::$fault).await;
                }
            )*
        }
    };
}

faults!(Cluster, cluster:
    a_primary_is_killed = Kill,
    a_frozen_primary_wakes_up_after_it_was_replaced = Freeze,
    a_primary_stalls = Stall,
    an_operator_fails_over = FailOver,
    a_slot_moves_in_halves = MoveInHalves,
    a_node_comes_and_goes = AddAndRemoveNode,
    a_node_forgets_its_scripts = FlushScripts,
    clients_are_cut_off_from_a_primary = CutOff,
    replies_are_lost = LoseReplies,
    a_replica_is_killed = KillReplica,
);

faults!(Sentinel, sentinel:
    a_primary_is_killed = Kill,
    a_frozen_primary_wakes_up_after_it_was_replaced = Freeze,
    a_primary_stalls = Stall,
    an_operator_fails_over = FailOver,
    a_primary_forgets_its_scripts = FlushScripts,
    clients_are_cut_off_from_the_primary = CutOff,
    replies_are_lost = LoseReplies,
    a_replica_is_killed = KillReplica,
    a_sentinel_is_frozen = FreezeSentinel,
);

// On Redis 8.6 and Valkey 9: cargo xtask test --server NAME -p delayline-chaos --test failover
// newer
faults!(Cluster, newer_cluster: a_slot_moves_at_once = MoveAtOnce,);
// On Valkey 9.
faults!(Sentinel, newer_sentinel: an_operator_hands_over = HandOver,);
