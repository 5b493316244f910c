//! Totals and history that are damaged, lost or not ours.

use delayline_core::{HistoryPoint, Resolution, Totals};

use super::*;

async fn totals(queue: &impl Backend, ms: u64) -> Totals {
    let Reply::Stats(stats) = apply(queue, ms, Op::Stats).await else { panic!() };
    stats.totals
}

async fn history(queue: &impl Backend, ms: u64) -> Vec<HistoryPoint> {
    let Reply::History(history) = apply(queue, ms, Op::History(Resolution::Minutes)).await else {
        panic!()
    };
    history.points
}

pub(crate) async fn damaged_totals_stop_nothing<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    let key = &queue.keys().all()[TOTALS][..];
    let enqueue = |name: &str| Op::Enqueue(vec![message(name)]);
    // Shorter, longer and other than any that this library writes.
    for (n, (damage, before)) in
        (1..).zip([(&[0, 0, 1][..], 1 << 40), (&[0xff; 1_000], u64::MAX), (b"", 0)])
    {
        server.binary_command(&[b"SET", key, damage]);
        let name = format!("message {n}");
        apply(&queue, 1, enqueue(&name)).await;
        let known = totals(&queue, 1).await;
        assert_eq!((known.lateness[0], known.enqueued), (before, n));
        assert_eq!(claimed(&queue, 1, u8::try_from(n).unwrap()).await.deliveries.len(), 1);
        assert_eq!(totals(&queue, 1).await.lateness[0], before.wrapping_add(1));
        apply(&queue, 1, settle(&name, u8::try_from(n).unwrap(), Outcome::Ack)).await;
        let kept = dump(&server, queue.keys().all());
        assert_eq!(findings(&queue, 1).await, []);
        assert_eq!(repaired(&queue, 1, 100).await, []);
        assert_eq!(dump(&server, queue.keys().all()), kept, "a repair leaves totals alone");
    }
}

pub(crate) async fn a_damaged_history_tells_only_what_it_knows<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    let key = &queue.keys().all()[HISTORY][..];
    let minute = |n: u64| n * 60_000;
    for n in 0..4 {
        apply(&queue, minute(n), Op::Enqueue(vec![message(&n.to_string())])).await;
    }
    assert_eq!(history(&queue, minute(4)).await.len(), 5);
    // The base of all instants here is the beginning of minute 30,000,000, whose slot is 120.
    let stored = server.binary_command(&[b"HGET", key, b"m121"]);
    let Raw::BulkString(point) = &stored else { panic!("{stored:?}") };
    server.binary_command(&[b"HSET", key, b"m120", b""]);
    server.binary_command(&[b"HSET", key, b"m122", &point[..]]);
    server.binary_command(&[b"HSET", key, b"m123", &[0xff; 300]]);
    server.binary_command(&[b"HSET", key, b"m119", &[0; 5]]);
    server.binary_command(&[b"HSET", key, b"m360", &point[..], b"", b"x"]);
    let points = history(&queue, minute(4)).await;
    assert_eq!(points.iter().map(|point| point.totals.enqueued).collect::<Vec<_>>(), [1, 4]);
    server.binary_command(&[b"DEL", key]);
    assert_eq!(history(&queue, minute(4)).await.len(), 1);
    apply(&queue, minute(4), Op::Enqueue(vec![message("new")])).await;
    assert_eq!(history(&queue, minute(4)).await.len(), 2);
}

/// The clock goes back by minutes, and the snapshots that were made in them are lost or damaged.
pub(crate) async fn without_its_history_a_queue_goes_back_in_time<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    let key = &queue.keys().all()[HISTORY][..];
    let damages: [&[&[u8]]; 2] = [&[b"DEL", key], &[b"HSET", key, b"m121", b"x", b"m122", b""]];
    for (op, damage) in every_op().iter().flat_map(|op| damages.map(|damage| (op, damage))) {
        server.command(&["FLUSHALL"]);
        fill(&queue).await;
        apply(&queue, 120_000, Op::Enqueue(vec![message("late")])).await;
        server.binary_command(damage);
        apply(&queue, 5, op.clone()).await;
    }
}

pub(crate) async fn totals_outlive_the_control_record<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    apply(&queue, 0, Op::Enqueue(vec![message("a"), message("b")])).await;
    assert_eq!(claimed(&queue, 0, 1).await.deliveries.len(), 2);
    server.binary_command(&[b"DEL", &queue.keys().all()[CONTROL][..]]);
    apply(&queue, 60_000, Op::Enqueue(vec![message("c")])).await;
    let known = totals(&queue, 60_000).await;
    assert_eq!((known.enqueued, known.delivered()), (1, 2));
    let points = history(&queue, 60_000).await;
    assert_eq!(points.iter().map(|point| point.totals.enqueued).collect::<Vec<_>>(), [0, 0, 1]);
}
