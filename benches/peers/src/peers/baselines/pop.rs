//! The same sorted set, popped by a script, which makes the claim atomic and cheap.

use std::sync::LazyLock;

use anyhow::Result;
use delayline_test_server::Server;
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, Script};
use tokio::task::JoinSet;

use super::{QUEUE, add, add_in_bulk, connect};
use crate::load::{TASKS, client_millis};
use crate::measure::Peer;

pub(crate) struct Pop(MultiplexedConnection);

const BATCH: usize = 100;

static POP: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, ARGV[2])
         if #due > 0 then redis.call('ZREM', KEYS[1], unpack(due)) end
         return due",
    )
});

impl Peer for Pop {
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

    /// As many loops as it takes for 256 messages to be in work at once, or a few more.
    async fn work(&mut self, _: usize) -> Result<usize> {
        let mut tasks = JoinSet::new();
        for _ in 0..TASKS.div_ceil(BATCH) {
            let mut connection = self.0.clone();
            tasks.spawn(async move {
                let mut handled = 0;
                loop {
                    let mut pop = POP.prepare_invoke();
                    pop.key(QUEUE).arg(client_millis()).arg(BATCH);
                    let popped: Vec<Vec<u8>> = pop.invoke_async(&mut connection).await?;
                    if popped.is_empty() {
                        return Ok::<_, anyhow::Error>(handled);
                    }
                    handled += popped.len();
                }
            });
        }
        let mut handled = 0;
        while let Some(ended) = tasks.join_next().await {
            handled += ended??;
        }
        Ok(handled)
    }

    async fn unfinished(&mut self) -> Result<usize> {
        Ok(self.0.zcard(QUEUE).await?)
    }
}
