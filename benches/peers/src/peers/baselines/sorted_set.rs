//! A sorted set of payloads by due instant.

use std::sync::LazyLock;

use anyhow::{Result, ensure};
use delayline_test_server::Server;
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, Script};
use tokio::task::JoinSet;

use super::{QUEUE, due_now};
use crate::load::{TASKS, bulks, client_millis, connect, in_tasks, numbered_payload, sum};
use crate::measure::Peer;

/// Polled with `ZRANGEBYSCORE ... LIMIT`, where the consumer that removes a member handles it; or
/// popped.
pub(crate) struct SortedSet<const POPPED: bool>(MultiplexedConnection);

pub(crate) type Polled = SortedSet<false>;

/// By a script, which makes the claim atomic and cheap.
pub(crate) type Popped = SortedSet<true>;

/// Members that one call pops.
const BATCH: usize = 100;

static POP: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, ARGV[2])
         if #due > 0 then redis.call('ZREM', KEYS[1], unpack(due)) end
         return due",
    )
});

impl<const POPPED: bool> Peer for SortedSet<POPPED> {
    type Store = Server;

    async fn open(server: &Server) -> Result<Self> {
        Ok(Self(connect(server).await?))
    }

    async fn send(&mut self, messages: usize) -> Result<()> {
        let connection = self.0.clone();
        in_tasks(messages, move |number| {
            let mut connection = connection.clone();
            async move {
                let payload = numbered_payload(number);
                let added: usize = connection.zadd(QUEUE, payload, client_millis()).await?;
                ensure!(added == 1, "a payload stands in the set already");
                Ok(())
            }
        })
        .await
    }

    async fn send_in_bulk(&mut self, messages: usize) -> Result<bool> {
        for (first, length) in bulks(messages) {
            let now = client_millis();
            let items: Vec<_> =
                (first..first + length).map(|number| (now, numbered_payload(number))).collect();
            let added: usize = self.0.zadd_multiple(QUEUE, &items).await?;
            ensure!(added == length, "{added} of {length} were added");
        }
        Ok(true)
    }

    async fn work(&mut self, _: usize) -> Result<usize> {
        if POPPED { pop(&self.0).await } else { poll(&mut self.0).await }
    }

    async fn unfinished(&mut self) -> Result<usize> {
        Ok(self.0.zcard(QUEUE).await?)
    }
}

/// One task polls; each message has a task that handles it if it could remove it.
async fn poll(connection: &mut MultiplexedConnection) -> Result<usize> {
    let mut handled = 0;
    loop {
        let due: Vec<Vec<u8>> = due_now(connection).await?;
        if due.is_empty() {
            return Ok(handled);
        }
        let mut tasks = JoinSet::new();
        for message in due {
            let mut connection = connection.clone();
            tasks.spawn(async move { Ok(connection.zrem::<_, _, usize>(QUEUE, message).await?) });
        }
        handled += sum(tasks).await?;
    }
}

/// As many loops as it takes for 256 messages to be in work at once, or a few more.
async fn pop(connection: &MultiplexedConnection) -> Result<usize> {
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS.div_ceil(BATCH) {
        let mut connection = connection.clone();
        tasks.spawn(async move {
            let mut handled = 0;
            loop {
                let mut pop = POP.prepare_invoke();
                pop.key(QUEUE).arg(client_millis()).arg(BATCH);
                let popped: Vec<Vec<u8>> = pop.invoke_async(&mut connection).await?;
                if popped.is_empty() {
                    return Ok(handled);
                }
                handled += popped.len();
            }
        });
    }
    sum(tasks).await
}
