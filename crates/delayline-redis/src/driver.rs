//! Opens connections with redis-rs.

use std::fmt;

use async_trait::async_trait;
use delayline_core::Error;
use delayline_redis_protocol::{Address, ConnectOptions, Dialer, Driver, log_in};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisConnectionInfo};

use crate::connection::RedisConnection;
use crate::failure::failure;

/// Requests that wait for the socket inside redis-rs. Others wait outside, which is just as good.
const PIPELINE_BUFFER: usize = 1024;

/// Opens connections with redis-rs.
pub struct RedisDriver {
    /// What `Debug` shows.
    address: String,
    target: Target,
}

enum Target {
    /// We connect and log in: every failure has its kind, and a lost connection is noticed.
    Options(Box<ConnectOptions>, Dialer),
    /// The client does both.
    Client(Box<Client>),
}

impl RedisDriver {
    /// The driver of [`transport`](crate::transport).
    pub(crate) fn from_client(client: &Client) -> Result<Self, Error> {
        let info = client.get_connection_info();
        let address = info.addr().to_string();
        // Off by default, which halves the throughput (redis-rs#2195).
        let tcp = info.tcp_settings().clone().set_nodelay(true);
        let client =
            Client::open(info.clone().set_tcp_settings(tcp)).map_err(|error| failure(&error))?;
        Ok(Self { address, target: Target::Client(Box::new(client)) })
    }
}

#[async_trait]
impl Driver for RedisDriver {
    type Connection = RedisConnection;

    fn new(address: &Address, options: &ConnectOptions) -> Result<Self, Error> {
        let dialer = Dialer::new(address, options.ca_pem.as_deref())?;
        Ok(Self {
            address: address.to_string(),
            target: Target::Options(Box::new(options.clone()), dialer),
        })
    }

    async fn connect(&self) -> Result<RedisConnection, Error> {
        match &self.target {
            Target::Options(options, dialer) => {
                let stream = dialer.dial().await?;
                // Without a password and a database, redis-rs sends nothing on its own.
                let bare = RedisConnectionInfo::default().set_skip_set_lib_name();
                let (connection, driver) =
                    MultiplexedConnection::new_with_config(&bare, stream, settings())
                        .await
                        .map_err(|error| failure(&error))?;
                let connection = RedisConnection::driven(connection, driver);
                log_in(&connection, options).await?;
                Ok(connection)
            }
            Target::Client(client) => {
                let connection = client
                    .get_multiplexed_async_connection_with_config(&settings())
                    .await
                    .map_err(|error| failure(&error))?;
                Ok(RedisConnection::new(connection))
            }
        }
    }
}

impl fmt::Debug for RedisDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address)
    }
}

/// No time limits: the default of 500 ms also ends blocking commands (redis-rs#1924), and the link
/// has its own.
fn settings() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(PIPELINE_BUFFER)
}
