//! Queues of shards that several programs open and remove.

use delayline_core::SetLimits;
use delayline_redis_protocol::Removal;

use super::*;
use crate::Queue;
use crate::local::Local;
use crate::store::{FoundQueues, Store};

/// Several programs open a new queue at the same time, each with its own number of shards.
#[tokio::test(start_paused = true)]
async fn programs_of_several_opinions_agree_or_are_refused() {
    for seed in 0..100 {
        let random = Arc::new(Mutex::new(fastrand::Rng::with_seed(seed)));
        let place = Arc::clone(&random);
        let create = move |_| Unsteady(MemoryBackend::new(), Arc::clone(&place), true);
        let store: Arc<dyn Store> = Arc::new(Local::new(create));
        let name = QueueName::new("q").unwrap();
        let program = |number: u32, opinion| {
            let (store, name) = (Arc::clone(&store), name.clone());
            async move {
                let opened = loop {
                    match open(&*store, name.clone(), Some(opinion)).await {
                        Ok(opened) => break opened,
                        Err(error) => match error.kind() {
                            ErrorKind::OtherShards { found, requested } => {
                                assert_eq!(*requested, opinion);
                                return Err(*found);
                            }
                            kind => assert_eq!(*kind, ErrorKind::Timeout),
                        },
                    }
                };
                let queue: Queue<u32> = Queue::new(opened.backend);
                let id = format!("m{number}");
                assert!(queue.message(&number).id(id.as_str()).send().await.unwrap().is_accepted());
                Ok((opinion, id))
            }
        };
        let opinions = (0..5).map(|number| {
            tokio::spawn(program(number, [2, 3, 5][random.lock().unwrap().usize(..3)]))
        });
        let ends: Vec<_> = join_all(opinions).await.into_iter().map(Result::unwrap).collect();
        let agreed = loop {
            if let Ok(agreed) = number(&*store, &name).await {
                break agreed.unwrap();
            }
        };
        let queue = loop {
            if let Ok(opened) = open(&*store, name.clone(), None).await {
                break Queue::<u32>::new(opened.backend);
            }
        };
        for end in ends {
            match end {
                Err(found) => assert_eq!(found, agreed, "seed {seed}"),
                Ok((opinion, id)) => {
                    assert_eq!(opinion, agreed, "seed {seed}");
                    let found = queue.get(&id).await.unwrap();
                    assert!(matches!(found, crate::Found::Live(_)), "seed {seed}: {id}");
                }
            }
        }
    }
}

/// A place in which a program sends to a queue while another is removed, or in which that fails.
#[derive(Debug)]
struct SentTo {
    local: Local<MemoryBackend>,
    to: QueueName,
    during: Option<QueueName>,
    fails: bool,
}

impl SentTo {
    async fn stats(&self, name: QueueName) -> Stats {
        let reply = self.local.queue(name).apply(At::Server, &Op::Stats).await.unwrap().reply;
        let Reply::Stats(stats) = reply else { panic!("{reply:?}") };
        *stats
    }
}

#[async_trait]
impl Store for SentTo {
    async fn open(&self, name: QueueName) -> Result<Arc<dyn QueueBackend>, crate::Error> {
        self.local.open(name).await
    }

    async fn queues(&self, most_keys: u64) -> Result<FoundQueues, crate::Error> {
        self.local.queues(most_keys).await
    }

    async fn held(&self, name: QueueName) -> Result<Removal, crate::Error> {
        let (mut held, stats) = (Removal::default(), self.stats(name).await);
        held.messages = stats.scheduled + stats.ready;
        Ok(held)
    }

    async fn delete_if_empty(&self, name: QueueName) -> Result<Removal, crate::Error> {
        let is_during = self.during.as_ref() == Some(&name);
        if is_during && self.fails {
            return Err(Error::new(ErrorKind::Unreachable).into());
        }
        if is_during {
            let to = self.local.queue(self.to.clone());
            to.apply(At::Server, &Op::Enqueue(vec![late()])).await?;
        }
        let held = self.held(name.clone()).await?;
        if held.messages == 0 {
            let none = SetLimits::new().leased(None).in_order(false);
            let queue = self.local.queue(name);
            queue.apply(At::Server, &Op::SetLimits(none)).await?;
            queue.apply(At::Server, &Op::Resume).await?;
        }
        Ok(held)
    }
}

/// The shard that is removed last.
fn last() -> QueueName {
    QueueName::new("q").unwrap().shard(3).unwrap()
}

fn late() -> NewMessage {
    let ids = (0..).map(|n| MessageId::try_from(format!("late-{n}")).unwrap());
    NewMessage::new(ids.into_iter().find(|id| place_of(None, id, 4) == 3).unwrap(), "7")
}

/// Programs without a number would not see it otherwise, and its shards would ignore their limits.
#[tokio::test]
async fn a_message_that_is_sent_while_its_queue_is_removed_stays_visible_and_limited() {
    let name = QueueName::new("q").unwrap();
    let plain = Some(name.clone());
    for (to, during, fails) in [
        (last(), None, false),
        (last(), Some(last()), false),
        (last(), plain.clone(), false),
        (name.clone(), plain.clone(), false),
        (last(), plain, true),
    ] {
        // A plain queue remains then.
        let is_removed = during.is_none() || to == name;
        let store = SentTo { local: Local::memory(), to, during: during.clone(), fails };
        let opened = open(&store, name.clone(), Some(4)).await.unwrap();
        let limits = SetLimits::new().leased(8).in_order(true);
        opened.backend.apply(At::Server, &Op::SetLimits(limits)).await.unwrap();
        opened.backend.apply(At::Server, &Op::Pause).await.unwrap();
        let removal = delete_if_empty(&store, &name).await;
        let messages = removal.map(|removal| removal.unwrap().messages);
        assert_eq!(messages.ok(), (!fails).then(|| u64::from(during.is_some())));
        let queue: Queue<u32> = Queue::new(open(&store, name.clone(), None).await.unwrap().backend);
        let found = queue.get(&late().id).await.unwrap();
        assert_eq!(matches!(found, crate::Found::Live(_)), during.is_some() && !fails);
        for number in 0..4 {
            let Stats { paused, limits, .. } = store.stats(name.shard(number).unwrap()).await;
            assert_eq!(limits.leased, (!is_removed).then_some(2), "{number}");
            assert_eq!((limits.in_order, paused), (!is_removed, !is_removed), "{number}");
        }
    }
}
