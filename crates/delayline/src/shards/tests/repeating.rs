//! Claims of shards that fail, are dropped or come twice.

use super::*;

/// The same claim at the same time, and after a future that was dropped.
#[tokio::test(start_paused = true)]
async fn a_claim_that_is_repeated_too_early_gets_the_same_leases() {
    let random = Arc::new(Mutex::new(fastrand::Rng::with_seed(7)));
    let queue = QueueName::new("q").unwrap();
    let shard = |number| {
        let random = Arc::clone(&random);
        let backend = Arc::new(Unsteady(MemoryBackend::new(), random, false));
        Shard { name: queue.shard(number).unwrap(), backend }
    };
    let shards = Arc::new(Shards::new(queue.clone(), (0..3).map(shard).collect()));
    let mut leased = 0;
    for n in 0_u8..100 {
        let ids = (0..5).map(|it| MessageId::try_from(format!("m{n}-{it}")).unwrap());
        let messages = ids.map(|id| NewMessage::new(id, "")).collect();
        shards.apply(At::Server, &Op::Enqueue(messages)).await.unwrap();
        let consumer = ConsumerName::new("c").unwrap();
        let id = ClaimId::from_bytes([n; ClaimId::BYTES]);
        let claim = Op::Claim(Claim::new(consumer, id, 4, Millis::saturating(600_000)));
        let claims = || {
            let (shards, claim) = (Arc::clone(&shards), claim.clone());
            tokio::spawn(async move { shards.apply(At::Server, &claim).await })
        };
        let ids = |applied: Applied| -> BTreeSet<MessageId> {
            let Reply::Claim(claimed) = applied.reply else { panic!() };
            claimed.deliveries.into_iter().map(|it| it.message.info.id).collect()
        };
        let first = claims();
        for _ in 0..n % 20 {
            tokio::task::yield_now().await;
        }
        if n % 2 == 0 {
            first.abort();
            drop(first.await);
            leased += ids(claims().await.unwrap().unwrap()).len();
        } else {
            let second = claims();
            let first = ids(first.await.unwrap().unwrap());
            assert_eq!(ids(second.await.unwrap().unwrap()), first, "claim {n}");
            leased += first.len();
        }
        let Reply::Stats(stats) = shards.apply(At::Server, &Op::Stats).await.unwrap().reply else {
            panic!()
        };
        assert_eq!(stats.leased, leased as u64, "claim {n}");
    }
}

/// Its leases are lost with the reply, as in a plain queue.
#[tokio::test(start_paused = true)]
async fn a_reply_that_was_lost_does_not_overfill_a_smaller_claim() {
    let (shards, recorded) = shards(3);
    let ids = (0..30).map(|n| MessageId::try_from(format!("m{n}")).unwrap());
    let messages = ids.map(|id| NewMessage::new(id, "")).collect();
    shards.apply(At::Server, &Op::Enqueue(messages)).await.unwrap();
    let claim = async |number, max| {
        let consumer = ConsumerName::new("c").unwrap();
        let id = ClaimId::from_bytes([number; ClaimId::BYTES]);
        let claim = Claim::new(consumer, id, max, Millis::saturating(600_000));
        shards.apply(At::Server, &Op::Claim(claim)).await
    };
    recorded.iter().for_each(|it| it.2.store(true, Ordering::Relaxed));
    for shard in shards.shards.iter().enumerate().map(|(shard, _)| shard) {
        shards.heads().failed(shard, &unexpected());
    }
    tokio::time::advance(Duration::from_secs(10)).await;
    assert_eq!(claim(1, 6).await.unwrap_err().class(), ErrorClass::Ambiguous);
    recorded.iter().for_each(|it| it.2.store(false, Ordering::Relaxed));
    tokio::time::advance(Duration::from_secs(10)).await;
    let Reply::Claim(claimed) = claim(2, 1).await.unwrap().reply else { panic!() };
    assert_eq!(claimed.deliveries.len(), 1);
}

/// A shard whose replies are lost delays the messages of the others by a quarter of a second, once.
/// When it replies again, the messages that it has leased meanwhile come with their leases.
#[tokio::test(start_paused = true)]
async fn a_silent_shard_holds_up_no_other() {
    let (shards, recorded) = shards(3);
    let ids = (0..30).map(|n| MessageId::try_from(format!("m{n}")).unwrap());
    let messages = ids.map(|id| NewMessage::new(id, "")).collect();
    shards.apply(At::Server, &Op::Enqueue(messages)).await.unwrap();
    recorded[1].2.store(true, Ordering::Relaxed);
    let mut delivered = BTreeSet::new();
    let begin = tokio::time::Instant::now();
    for n in 0_u8..200 {
        if n == 100 {
            recorded[1].2.store(false, Ordering::Relaxed);
            tokio::time::advance(Duration::from_secs(10)).await;
        }
        let consumer = ConsumerName::new("c").unwrap();
        let id = ClaimId::from_bytes([n; ClaimId::BYTES]);
        let claim = Op::Claim(Claim::new(consumer, id, 4, Millis::saturating(600_000)));
        // A claim that is answered by no shard is repeated, as a worker does.
        let reply = loop {
            match shards.apply(At::Server, &claim).await {
                Ok(applied) => break applied.reply,
                Err(error) => assert_eq!(error.class(), ErrorClass::Ambiguous),
            }
        };
        let Reply::Claim(claimed) = reply else { panic!() };
        for delivery in claimed.deliveries {
            assert_eq!(delivery.lease.epoch, 1);
            assert!(delivered.insert(delivery.message.info.id), "delivered twice");
        }
        if n == 10 {
            let (others, took) = (delivered.len(), begin.elapsed());
            assert!(others >= 15 && took < Duration::from_millis(400), "{others} in {took:?}");
        }
    }
    assert_eq!(delivered.len(), 30);
}

/// The first claim fails at both shards. When it is repeated, one of them still loses its replies.
#[tokio::test(start_paused = true)]
async fn a_lost_reply_keeps_a_repeated_claim_from_no_other_shard() {
    let (shards, all) = failing();
    let message = |n| NewMessage::new(MessageId::try_from(format!("m{n}")).unwrap(), "");
    shards.apply(At::Server, &Op::Enqueue((0..20).map(message).collect())).await.unwrap();
    let fail = |shard: usize, kind| *all[shard].1.lock().unwrap() = kind;
    fail(0, Some(ErrorKind::Timeout));
    fail(1, Some(ErrorKind::Unreachable));
    let consumer = ConsumerName::new("c").unwrap();
    let id = ClaimId::from_bytes([1; ClaimId::BYTES]);
    let claim = Op::Claim(Claim::new(consumer, id, 20, Millis::saturating(600_000)));
    let error = shards.apply(At::Server, &claim).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Ambiguous);
    fail(1, None);
    tokio::time::advance(Duration::from_secs(10)).await;
    let Reply::Claim(claimed) = shards.apply(At::Server, &claim).await.unwrap().reply else {
        panic!()
    };
    let in_second = |it: &Delivery| place_of(None, &it.message.info.id, 2) == 1;
    assert!(!claimed.deliveries.is_empty() && claimed.deliveries.iter().all(in_second));
}
