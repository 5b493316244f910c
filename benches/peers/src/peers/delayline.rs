//! Delayline, by both of its drivers.

use anyhow::Result;
use delayline::codec::Raw;
use delayline::{Bytes, Connect, Queue, RedisClient};
use delayline_benches::{send_in_bulk, send_singly, work};
use delayline_test_server::Server;

use crate::load::TASKS;
use crate::measure::Peer;

pub(crate) struct Delayline<const FRED: bool>(Queue<Bytes, Raw>);

/// By the `redis` crate.
pub(crate) type ByRedisRs = Delayline<false>;

/// By the `fred` crate.
pub(crate) type ByFred = Delayline<true>;

impl<const FRED: bool> Peer for Delayline<FRED> {
    type Store = Server;

    async fn open(server: &Server) -> Result<Self> {
        let driver = if FRED { RedisClient::Fred } else { RedisClient::Redis };
        let connection = Connect::new(&server.url())?.client(driver).connect().await?;
        Ok(Self(connection.queue("bench").await?.codec(Raw)))
    }

    async fn send(&mut self, messages: usize) -> Result<()> {
        send_singly(&self.0, messages, TASKS).await
    }

    async fn send_in_bulk(&mut self, messages: usize) -> Result<bool> {
        send_in_bulk(&self.0, messages).await?;
        Ok(true)
    }

    async fn work(&mut self, _: usize) -> Result<usize> {
        Ok(usize::try_from(work(&self.0, TASKS).await?)?)
    }

    async fn unfinished(&mut self) -> Result<usize> {
        let stats = self.0.stats().await?;
        let counts = [stats.scheduled, stats.ready, stats.leased, stats.dead];
        Ok(usize::try_from(counts.into_iter().sum::<u64>())?)
    }
}
