//! A sorted set: poll with `ZRANGEBYSCORE ... LIMIT`, and whoever removes a member has it.

use anyhow::Result;
use delayline_test_server::Server;
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use tokio::task::JoinSet;

use super::{QUEUE, add, add_in_bulk, connect};
use crate::load::{TASKS, client_millis};
use crate::measure::Peer;

pub(crate) struct Zset(MultiplexedConnection);

impl Peer for Zset {
    async fn open(server: &Server) -> Result<Self> {
        Ok(Self(connect(server).await?))
    }

    async fn send(&mut self, messages: usize) -> Result<()> {
        add(&self.0, messages).await
    }

    async fn send_in_bulk(&mut self, messages: usize) -> Result<bool> {
        add_in_bulk(&mut self.0, messages).await?;
        Ok(true)
    }

    /// One task polls; each message has a task that removes it and, if it was there, handles it.
    async fn work(&mut self, _: usize) -> Result<usize> {
        let mut handled = 0;
        loop {
            let now = client_millis();
            let due: Vec<Vec<u8>> =
                self.0.zrangebyscore_limit(QUEUE, 0, now, 0, TASKS.try_into()?).await?;
            if due.is_empty() {
                return Ok(handled);
            }
            let mut tasks = JoinSet::new();
            for message in due {
                let mut connection = self.0.clone();
                tasks.spawn(async move { connection.zrem::<_, _, usize>(QUEUE, message).await });
            }
            while let Some(removed) = tasks.join_next().await {
                handled += removed??;
            }
        }
    }

    async fn unfinished(&mut self) -> Result<usize> {
        Ok(self.0.zcard(QUEUE).await?)
    }
}
