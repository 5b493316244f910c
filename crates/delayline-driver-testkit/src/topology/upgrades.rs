//! A queue that is upgraded in a cluster, and moves to another node midway.

use std::sync::Arc;

use delayline_core::{
    At, Backend as _, Claim, ClaimId, ConsumerName, Millis, NewMessage, Op, Reply,
};
use delayline_test_server::Cluster;

use super::{Connect, has, id, queue_of};
use crate::next_layout::{Versions, conversions};

/// The cursor that a node has given means nothing to another: its hashes have another order.
pub async fn a_slot_that_moves_during_an_upgrade_loses_nothing<C: Connect>() {
    let cluster = Cluster::start();
    let [from, to, _] = cluster.nodes() else { panic!("three nodes") };
    let name = queue_of(&cluster, from);
    let queue = Versions::open::<C>(&cluster.url(), &name).await.unwrap();
    let ids: Vec<_> = (0..1_500).map(|n| id(&format!("message-{n}"))).collect();
    for ids in ids.chunks(300) {
        let message = |id: &delayline_core::MessageId| NewMessage::new(id.clone(), "payload");
        let op = Op::Enqueue(ids.iter().map(message).collect());
        queue.this.apply(At::Server, &op).await.unwrap();
    }
    let conversions = Arc::new(conversions());
    // The mark, and one page.
    for _ in 0..2 {
        assert!(queue.this.upgrade_page(&*conversions).await.unwrap().begun);
    }
    let slot = cluster.slot(&name);
    cluster.begin_to_move(slot, from, to);
    cluster.move_keys(from, to, &cluster.keys(from, slot));
    cluster.end_to_move(slot, to);
    while queue.this.upgrade_page(&*conversions).await.unwrap().is_needed() {}
    assert!(has(&queue.next, "message-0").await);
    let mut claimed = 0;
    for n in 0..=15 {
        let consumer = ConsumerName::new("c").unwrap();
        let lease = Millis::saturating(3_600_000);
        let claim = Claim::new(consumer, ClaimId::from_bytes([n; 16]), 100, lease);
        let applied = queue.next.apply(At::Server, &Op::Claim(claim)).await.unwrap();
        let Reply::Claim(page) = applied.reply else { panic!() };
        assert!(page.deaths.is_empty(), "{:?}", page.deaths);
        claimed += page.deliveries.len();
    }
    assert_eq!(claimed, ids.len());
}
