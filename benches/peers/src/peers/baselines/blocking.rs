//! A list: `LPUSH`, and `BLPOP` by as many connections as there are handlers.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use delayline_test_server::Server;
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, AsyncConnectionConfig, Client};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::QUEUE;
use crate::load::{TASKS, bulks, connect, in_tasks, payload};
use crate::measure::Peer;

pub(crate) struct Blocking {
    connection: MultiplexedConnection,
    client: Client,
    /// A connection that blocks cannot be shared.
    blocking: Vec<MultiplexedConnection>,
}

impl Blocking {
    /// Connections that wait for as long as the server does.
    async fn connect(&self) -> Result<Vec<MultiplexedConnection>> {
        let mut connections = Vec::new();
        for _ in 0..TASKS {
            let config = AsyncConnectionConfig::new().set_response_timeout(None);
            let opened = self.client.get_multiplexed_async_connection_with_config(&config);
            connections.push(opened.await?);
        }
        Ok(connections)
    }
}

impl Peer for Blocking {
    type Store = Server;

    async fn open(server: &Server) -> Result<Self> {
        let (connection, client) = (connect(server).await?, Client::open(server.url())?);
        let mut peer = Self { connection, client, blocking: Vec::new() };
        peer.blocking = peer.connect().await?;
        Ok(peer)
    }

    async fn send(&mut self, messages: usize) -> Result<()> {
        let connection = self.connection.clone();
        in_tasks(messages, move |_| {
            let mut connection = connection.clone();
            async move {
                let _length: usize = connection.lpush(QUEUE, payload()).await?;
                Ok(())
            }
        })
        .await
    }

    async fn send_in_bulk(&mut self, messages: usize) -> Result<bool> {
        for (_, length) in bulks(messages) {
            let _length: usize = self.connection.lpush(QUEUE, vec![payload(); length]).await?;
        }
        Ok(true)
    }

    async fn work(&mut self, messages: usize) -> Result<usize> {
        let (handled, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let mut tasks = JoinSet::new();
        for connection in self.blocking.drain(..) {
            let (handled, done) = (Arc::clone(&handled), Arc::clone(&done));
            tasks.spawn(pop_for_ever(connection, messages, handled, done));
        }
        tokio::select! {
            () = done.notified() => {}
            Some(ended) = tasks.join_next() => match ended?? {},
        }
        // They wait for messages now; dropping them closes their connections.
        tasks.abort_all();
        Ok(handled.load(Ordering::Relaxed))
    }

    async fn unfinished(&mut self) -> Result<usize> {
        if self.blocking.is_empty() {
            self.blocking = self.connect().await?;
        }
        Ok(self.connection.llen(QUEUE).await?)
    }
}

/// Handles messages, and reports when all `messages` have been handled.
async fn pop_for_ever(
    mut connection: MultiplexedConnection,
    messages: usize,
    handled: Arc<AtomicUsize>,
    done: Arc<Notify>,
) -> Result<Infallible> {
    loop {
        let popped: Option<(String, Vec<u8>)> = connection.blpop(QUEUE, 0.0).await?;
        popped.context("without a timeout something comes")?;
        if handled.fetch_add(1, Ordering::Relaxed) + 1 == messages {
            done.notify_one();
        }
    }
}
