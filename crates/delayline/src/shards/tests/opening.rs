//! Queues of shards that several programs open and remove.

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

/// A place in which a program sends to a shard while the plain queue is removed.
#[derive(Debug)]
struct SentTo(Local<MemoryBackend>, bool);

#[async_trait]
impl Store for SentTo {
    async fn open(&self, name: QueueName) -> Result<Arc<dyn QueueBackend>, crate::Error> {
        self.0.open(name).await
    }

    async fn queues(&self, most_keys: u64) -> Result<FoundQueues, crate::Error> {
        self.0.queues(most_keys).await
    }

    async fn held(&self, _name: QueueName) -> Result<Removal, crate::Error> {
        Ok(Removal::default())
    }

    async fn delete_if_empty(&self, name: QueueName) -> Result<Removal, crate::Error> {
        if self.1 && !name.is_shard() {
            let place = u32::try_from(place_of(None, &late(), 4)).unwrap();
            let shard = self.0.queue(name.shard(place)?);
            shard.apply(At::Server, &Op::Enqueue(vec![NewMessage::new(late(), "7")])).await?;
        }
        Ok(Removal::default())
    }
}

fn late() -> MessageId {
    MessageId::try_from("late").unwrap()
}

/// Programs without a number would not see it otherwise.
#[tokio::test]
async fn a_message_that_is_sent_while_its_queue_is_removed_stays_visible() {
    for is_sent in [false, true] {
        let store = SentTo(Local::memory(), is_sent);
        let name = QueueName::new("q").unwrap();
        open(&store, name.clone(), Some(4)).await.unwrap();
        let removal = delete_if_empty(&store, &name).await.unwrap().unwrap();
        assert_eq!(removal.messages, u64::from(is_sent));
        let queue: Queue<u32> = Queue::new(open(&store, name, None).await.unwrap().backend);
        let found = queue.get("late").await.unwrap();
        assert_eq!(matches!(found, crate::Found::Live(_)), is_sent);
    }
}
