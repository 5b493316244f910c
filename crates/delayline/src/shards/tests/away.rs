//! One of several shards whose server cannot be reached.

use delayline_core::{Enqueued, SetLimits};
use tokio::sync::watch;

use super::*;
use crate::after::siblings::Siblings;
use crate::cancels::Cancels;
use crate::codec::Json;
use crate::registry::WorkerRegistry;
use crate::{Job, Queue, Worker};

fn queue() -> (Queue<u32>, [Arc<Failing>; 2]) {
    let (shards, all) = failing();
    let (cancels, registry) = (Cancels::default(), WorkerRegistry::default());
    (Queue::sharing(Opened::sharded(shards), Json, cancels, registry, Siblings::default()), all)
}

fn is_in(shard: usize, id: &str) -> bool {
    place_of(None, &MessageId::try_from(id).unwrap(), 2) == shard
}

fn fail(shard: &Failing, kind: Option<ErrorKind>) {
    *shard.1.lock().unwrap() = kind;
}

#[tokio::test(start_paused = true)]
async fn sends_to_other_shards_succeed() {
    let (queue, all) = queue();
    fail(&all[1], Some(ErrorKind::Unreachable));
    let sends = (0..20).map(|n| {
        let queue = queue.clone();
        async move { (n, queue.message(&n).id(n.to_string()).send().await) }
    });
    let drafts = (20..40).map(|n| queue.message(&n).id(n.to_string()));
    let (one_by_one, together) = tokio::join!(join_all(sends), queue.send_many(drafts));
    for (n, sent) in one_by_one.into_iter().chain((20..).zip(together)) {
        match sent {
            Ok(sent) => assert!(
                matches!(sent.outcome, Enqueued::Created { .. }) && is_in(0, &n.to_string())
            ),
            Err(error) => {
                assert_eq!(*error.kind(), ErrorKind::Unreachable);
                assert!(is_in(1, &n.to_string()));
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_goes_on_with_other_shards_and_settles_later() {
    let (queue, all) = queue();
    for n in 0..40 {
        assert!(queue.message(&n).id(n.to_string()).send().await.unwrap().is_accepted());
    }
    let away = Arc::clone(&all[1]);
    let handler = move |job: Job<u32>| {
        // Its settlement is the first that fails.
        if is_in(1, &job.id().to_string()) {
            fail(&away, Some(ErrorKind::Unreachable));
        }
        async { Ok::<_, &str>(()) }
    };
    let worker = Worker::builder(queue).concurrency(4).until_empty(true).build().unwrap();
    let worker = tokio::spawn(async move { worker.run(handler).await });
    let begin = tokio::time::Instant::now();
    let left = async || {
        let Reply::Stats(stats) = all[0].0.apply(At::Server, &Op::Stats).await.unwrap().reply
        else {
            panic!()
        };
        stats.ready + stats.leased
    };
    while left().await > 0 {
        assert!(begin.elapsed() < Duration::from_secs(20), "{} are left", left().await);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    fail(&all[1], None);
    // The shard fails again with each of its messages, and works for a while in between.
    let back = tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(100)).await;
            fail(&all[1], None);
        }
    });
    let summary = worker.await.unwrap();
    back.abort();
    assert_eq!((summary.acked, summary.failed), (40, 0));
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_refuses_claims_is_reported_while_another_keeps_the_worker_busy() {
    let (queue, all) = queue();
    fail(&all[1], Some(ErrorKind::PermissionDenied));
    for n in (0..).filter(|n: &u32| is_in(0, &n.to_string())).take(2) {
        let _ = queue.message(&n).id(n.to_string()).send().await.unwrap();
    }
    let (refusals, refused) = watch::channel(Vec::new());
    let worker = Worker::builder(queue)
        .concurrency(2)
        .on_refusal(move |error| refusals.send_modify(|all| all.push(error.to_string())))
        .build()
        .unwrap();
    let reports = refused.clone();
    let reported = async move || {
        let mut reports = reports.clone();
        reports.wait_for(|all| !all.is_empty()).await.map(|_| ())
    };
    let (begun, mut begins) = watch::channel(0);
    let first = reported.clone();
    // The hook may be called before the worker claims the second message.
    let shutdown = async move {
        let both = (first().await, begins.wait_for(|begun| *begun == 2).await.map(|_| ()));
        drop(both);
    };
    let handler = move |_: Job<u32>| {
        begun.send_modify(|begun| *begun += 1);
        let reported = reported.clone();
        async move { reported().await }
    };
    let run = worker.run_until(shutdown, handler);
    let summary = tokio::time::timeout(Duration::from_secs(30), run).await.unwrap();
    assert_eq!(summary.acked, 2);
    let refused = refused.borrow();
    assert!(refused.len() == 1 && refused[0].contains("q#1"), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn a_queue_is_in_order_if_all_shards_are() {
    let (queue, all) = queue();
    let in_order = SetLimits::new().in_order(true);
    fail(&all[1], Some(ErrorKind::Unreachable));
    let error = queue.set_limits(in_order).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Partial);
    fail(&all[1], None);
    assert!(!queue.limits().await.unwrap().in_order);
    assert!(queue.set_limits(in_order).await.unwrap());
    assert!(queue.limits().await.unwrap().in_order);
}
