//! A string for each message, and a sorted set of their ids.

use anyhow::{Context, Result, ensure};
use delayline_test_server::Server;
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use tokio::task::JoinSet;

use super::{QUEUE, due_now};
use crate::load::{bulks, client_millis, connect, in_tasks, payload, sum};
use crate::measure::Peer;

pub(crate) struct Strings(MultiplexedConnection);

fn key(id: &str) -> String {
    format!("bench:message:{id}")
}

impl Peer for Strings {
    type Store = Server;

    async fn open(server: &Server) -> Result<Self> {
        Ok(Self(connect(server).await?))
    }

    async fn send(&mut self, messages: usize) -> Result<()> {
        let connection = self.0.clone();
        in_tasks(messages, move |number| {
            let mut connection = connection.clone();
            async move {
                let id = number.to_string();
                let mut both = redis::pipe();
                both.set(key(&id), payload()).ignore().zadd(QUEUE, id, client_millis());
                let (added,): (usize,) = both.query_async(&mut connection).await?;
                ensure!(added == 1, "the id is taken");
                Ok(())
            }
        })
        .await
    }

    async fn send_in_bulk(&mut self, messages: usize) -> Result<bool> {
        for (first, length) in bulks(messages) {
            let (now, payload) = (client_millis(), payload());
            let ids: Vec<_> = (first..first + length).map(|number| number.to_string()).collect();
            let strings: Vec<_> = ids.iter().map(|id| (key(id), &payload)).collect();
            let due: Vec<_> = ids.iter().map(|id| (now, id)).collect();
            let mut both = redis::pipe();
            both.mset(&strings).ignore().zadd_multiple(QUEUE, &due);
            let (added,): (usize,) = both.query_async(&mut self.0).await?;
            ensure!(added == length, "{added} of {length} were added");
        }
        Ok(true)
    }

    /// One task polls; each message has a task that reads it, handles it and deletes it.
    async fn work(&mut self, _: usize) -> Result<usize> {
        let mut handled = 0;
        loop {
            let due: Vec<String> = due_now(&mut self.0).await?;
            if due.is_empty() {
                return Ok(handled);
            }
            let mut tasks = JoinSet::new();
            for id in due {
                let mut connection = self.0.clone();
                tasks.spawn(async move {
                    let payload: Option<Vec<u8>> = connection.get(key(&id)).await?;
                    payload.context("an id without a message")?;
                    let mut both = redis::pipe();
                    both.del(key(&id)).ignore().zrem(QUEUE, id);
                    let (removed,): (usize,) = both.query_async(&mut connection).await?;
                    Ok(removed)
                });
            }
            handled += sum(tasks).await?;
        }
    }

    async fn unfinished(&mut self) -> Result<usize> {
        Ok(self.0.zcard(QUEUE).await?)
    }
}
