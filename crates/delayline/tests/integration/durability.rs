//! Which calls are to be confirmed, and the results of unconfirmed calls (G25).

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Fault, Faulty};
use delayline::admin::Redriven;
use delayline::backend::{Op, QueueBackend};
use delayline::{Durability, Enqueued, Error, ErrorClass, ErrorKind, Job, Queue, Worker};

const ONE: Durability = Durability::Replicas(1);

fn queue(backend: &Arc<Faulty>) -> Queue<u32> {
    Queue::new(Arc::clone(backend) as Arc<dyn QueueBackend>)
}

#[tokio::test(start_paused = true)]
async fn a_queue_or_a_single_call_is_durable() {
    let backend = Faulty::new();
    let plain = queue(&backend);
    plain.send(&1).await.unwrap();
    plain.durability(ONE).send(&2).await.unwrap();
    plain.send(&3).await.unwrap();
    let durable = plain.durability(Durability::Disk);
    durable.send(&4).await.unwrap();
    assert!(durable.message(&5).send().await.unwrap().is_accepted());
    for sent in durable.send_many([plain.message(&6)]).await {
        assert!(sent.unwrap().is_accepted());
    }
    let (none, disk) = (Durability::None, Durability::Disk);
    assert_eq!(backend.durabilities("enqueue"), [none, ONE, none, disk, disk, disk]);
    // Names and patience don't change it.
    let named = durable.clone().patience(Duration::from_secs(1));
    named.send(&7).await.unwrap();
    assert_eq!(backend.durabilities("enqueue").last(), Some(&disk));
}

#[tokio::test(start_paused = true)]
async fn what_would_be_gone_for_good_is_confirmed_and_nothing_else() {
    let backend = Faulty::new();
    let queue = queue(&backend).durability(ONE);
    let draft = |id: &str| queue.message(&1).id(id);
    let late = || draft("late").due_in(Duration::from_secs(60));
    assert!(late().send().await.unwrap().is_accepted());
    queue.reschedule_in("late", Duration::from_secs(50)).await.unwrap();
    queue.cancel("late").await.unwrap();
    queue.pause().await.unwrap();
    queue.resume().await.unwrap();
    queue.get("late").await.unwrap();
    queue.check().await.unwrap();
    queue.repair().await.unwrap();
    assert!(draft("dead").max_failures(1).send().await.unwrap().is_accepted());
    // The handler is slow enough for a heartbeat.
    let worker = Worker::builder(queue.clone()).lease(Duration::from_secs(3)).until_empty(true);
    worker.build().unwrap().run(fail).await;
    assert!(matches!(queue.redrive("dead").await.unwrap(), Redriven::Done { .. }));
    queue.purge("dead").await.unwrap();
    for op in ["enqueue", "reschedule", "cancel", "pause", "resume", "settle", "redrive", "purge"] {
        assert!(!backend.durabilities(op).is_empty(), "{op}");
        assert!(backend.durabilities(op).iter().all(|it| *it == ONE), "{op}");
    }
    for op in ["claim", "extend", "get", "check", "repair", "stats"] {
        assert!(!backend.durabilities(op).is_empty(), "{op}");
        assert!(backend.durabilities(op).iter().all(|it| *it == Durability::None), "{op}");
    }
}

async fn fail(_: Job<u32>) -> Result<(), std::io::Error> {
    tokio::time::sleep(Duration::from_secs(2)).await;
    Err(std::io::Error::other("no"))
}

#[tokio::test(start_paused = true)]
async fn what_is_not_confirmed_is_repeated_and_confirmed_anew() {
    let backend = Faulty::with_faults("enqueue", &[Fault::Unconfirmed, Fault::Unconfirmed]);
    let queue = queue(&backend).durability(ONE);
    let sent = queue.message(&1).id("a").send().await.unwrap();
    assert!(matches!(sent.outcome, Enqueued::Duplicate { .. }) && sent.repeated);
    assert_eq!(backend.durabilities("enqueue"), [ONE; 3], "a duplicate is confirmed, too");
    assert_eq!(backend.stats().await.ready, 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_never_confirmed_is_ambiguous_within_the_patience() {
    let backend = Faulty::with_faults("enqueue", &[Fault::Unconfirmed; 100]);
    let queue = queue(&backend).durability(ONE);
    let error = queue.send(&1).await.unwrap_err();
    assert_eq!((error.kind(), error.class()), (&ErrorKind::Unconfirmed, ErrorClass::Ambiguous));
    assert_eq!(backend.durabilities("enqueue").len(), 5);
    assert!(backend.elapsed() <= Duration::from_secs(10));
}

/// A second one would be another message if the first was handled meanwhile.
#[tokio::test(start_paused = true)]
async fn a_message_that_reuses_an_id_is_not_repeated() {
    let backend = Faulty::with_faults("enqueue", &[Fault::Unconfirmed]);
    let queue = queue(&backend).durability(ONE);
    let draft = queue.message(&1).id("a").reuse_finished_id();
    let error = draft.send().await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::Unconfirmed);
    assert_eq!(backend.sent("enqueue").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_ack_that_is_not_confirmed_is_repeated() {
    let backend = Faulty::with_faults("settle", &[Fault::Unconfirmed]);
    let queue = queue(&backend).durability(ONE);
    queue.send(&1).await.unwrap();
    let worker = Worker::builder(queue).until_empty(true).build().unwrap();
    let summary = worker.run(|_: Job<u32>| async { Ok::<(), std::io::Error>(()) }).await;
    assert_eq!(summary.acked, 1);
    assert_eq!(backend.durabilities("settle"), [ONE, ONE]);
}

/// Otherwise a failover could lose the claim and give the epoch to another handler.
#[tokio::test(start_paused = true)]
async fn no_handler_starts_before_its_claim_is_confirmed() {
    let backend = Faulty::with_faults("claim", &[Fault::Unconfirmed, Fault::Unconfirmed]);
    let queue = queue(&backend);
    queue.send(&1).await.unwrap();
    let worker = Worker::builder(queue).claim_durability(ONE).until_empty(true).build().unwrap();
    let claims = Arc::clone(&backend);
    let summary = worker
        .run(move |job: Job<u32>| {
            let claims = claims.sent("claim").into_iter().map(|(_, op)| match op {
                Op::Claim(claim) => claim.claim_id,
                other => panic!("{other:?}"),
            });
            // The next claim may be under way.
            let claims: Vec<_> = claims.take(3).collect();
            async move {
                assert_eq!(job.epoch(), 1);
                assert_eq!(claims, [claims[0]; 3], "the same claim, until it is confirmed");
                Ok::<(), std::io::Error>(())
            }
        })
        .await;
    assert_eq!((summary.acked, summary.failed), (1, 0), "{summary:?}");
    let durabilities = backend.durabilities("claim");
    assert!(durabilities.iter().all(|it| *it == ONE), "{durabilities:?}");
    assert_eq!(backend.durabilities("settle"), [Durability::None], "that is the queue's own");
}

#[tokio::test]
async fn a_worker_refuses_an_absurd_number_of_replicas() {
    let queue: Queue<u32> = delayline::connect("memory:").await.unwrap().queue("q").await.unwrap();
    let worker = Worker::builder(queue).claim_durability(Durability::Replicas(33));
    let error = worker.build().unwrap_err();
    assert!(error.to_string().contains("from 1 to 32"), "{error}");
}

/// Each takes 100 ms.
#[tokio::test(start_paused = true)]
async fn sends_of_different_durability_do_not_wait_for_each_other() {
    let backend = Faulty::with_plan(|_| Fault::SlowReply);
    let plain = queue(&backend);
    let durable = plain.durability(ONE);
    let sends = (0..10).map(|n| {
        let (plain, durable) = (plain.clone(), durable.clone());
        async move { tokio::try_join!(plain.send(&n), durable.send(&n)) }
    });
    for sent in futures_util::future::join_all(sends).await {
        sent.unwrap();
    }
    for durability in [Durability::None, ONE] {
        let sent = backend.sent("enqueue").into_iter().zip(backend.durabilities("enqueue"));
        let groups = sent.filter(|(_, it)| *it == durability).map(|((_, op), _)| match op {
            Op::Enqueue(messages) => messages.len(),
            other => panic!("{other:?}"),
        });
        let groups: Vec<_> = groups.collect();
        assert!(
            groups.len() <= 2 && groups.iter().sum::<usize>() == 10,
            "{durability}: {groups:?}"
        );
    }
    assert!(backend.elapsed() <= Duration::from_millis(400), "{:?}", backend.elapsed());
}

#[tokio::test]
async fn a_queue_in_memory_and_absurd_numbers_are_refused() {
    let queue: Queue<u32> = delayline::connect("memory:").await.unwrap().queue("q").await.unwrap();
    for durability in [ONE, Durability::Disk] {
        let durable = queue.durability(durability);
        let error = durable.send(&1).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
        assert!(error.to_string().contains(&durability.to_string()), "{error}");
    }
    for count in [0, 33] {
        let error: Error =
            queue.durability(Durability::Replicas(count)).send(&1).await.unwrap_err();
        assert!(error.to_string().contains("from 1 to 32"), "{error}");
    }
    assert_eq!(queue.stats().await.unwrap().ready, 0);
}
