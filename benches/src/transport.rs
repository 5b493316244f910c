//! The transports to a private server: driver, protocol, socket.

use std::fmt;

use anyhow::Result;
use delayline::codec::Raw;
use delayline::{Bytes, Connect, Queue, RedisClient};
use delayline_test_server::Server;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transport {
    pub(crate) driver: RedisClient,
    pub(crate) resp3: bool,
    pub(crate) tcp: bool,
}

/// The defaults of both drivers, over a unix socket.
pub(crate) const DRIVERS: [Transport; 2] = [
    Transport { driver: RedisClient::Redis, resp3: false, tcp: false },
    Transport { driver: RedisClient::Fred, resp3: false, tcp: false },
];

/// The queue that is measured.
pub(crate) const QUEUE: &str = "bench";

impl Transport {
    /// Starts a server that can be reached this way.
    pub(crate) fn start(self) -> Result<Server> {
        let builder = Server::builder();
        Ok(if self.tcp { builder.tcp() } else { builder }.try_start()?)
    }

    pub(crate) async fn open(self, server: &Server) -> Result<Queue<Bytes, Raw>> {
        self.open_at(&server.url()).await
    }

    pub(crate) async fn open_at(self, url: &str) -> Result<Queue<Bytes, Raw>> {
        let protocol = if self.resp3 { "?protocol=resp3" } else { "" };
        let url = format!("{url}{protocol}");
        let connection = Connect::new(&url)?.client(self.driver).connect().await?;
        Ok(connection.queue(QUEUE).await?.codec(Raw))
    }

    pub(crate) const fn driver_name(self) -> &'static str {
        match self.driver {
            RedisClient::Redis => "redis-rs",
            _ => "fred",
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = if self.resp3 { "RESP3" } else { "RESP2" };
        let socket = if self.tcp { "TCP" } else { "unix socket" };
        write!(f, "{}, {protocol}, {socket}", self.driver_name())
    }
}
