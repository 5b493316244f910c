//! Where and how to make connections.

use std::fmt;

use async_trait::async_trait;
use delayline_core::Error;
use delayline_redis_protocol::{ConnectOptions, Driver};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisConnectionInfo};

use crate::connection::RedisConnection;
use crate::handshake;
use crate::stream::Dialer;

/// Requests that wait inside of redis-rs for the socket. More wait outside, which is as good.
const PIPELINE_BUFFER: usize = 1024;

/// Makes connections with redis-rs.
pub(crate) struct RedisDriver {
    /// What `Debug` shows.
    address: String,
    target: Target,
}

enum Target {
    /// Dial and log in ourselves: every failure has its kind, and a lost connection is noticed.
    Options(Box<ConnectOptions>, Dialer),
    /// Leave both to the client.
    Client(Box<Client>),
}

impl RedisDriver {
    pub(crate) fn from_options(options: &ConnectOptions) -> Result<Self, Error> {
        let dialer = Dialer::new(&options.address, options.ca_pem.as_deref())?;
        Ok(Self {
            address: options.to_string(),
            target: Target::Options(Box::new(options.clone()), dialer),
        })
    }

    pub(crate) fn from_client(client: &Client) -> Result<Self, Error> {
        let info = client.get_connection_info();
        let address = info.addr().to_string();
        // Off by default, it costs half of the throughput (redis-rs#2195).
        let tcp = info.tcp_settings().clone().set_nodelay(true);
        let client = Client::open(info.clone().set_tcp_settings(tcp))
            .map_err(|error| handshake::failure(&error))?;
        Ok(Self { address, target: Target::Client(Box::new(client)) })
    }
}

#[async_trait]
impl Driver for RedisDriver {
    type Connection = RedisConnection;

    async fn connect(&self) -> Result<RedisConnection, Error> {
        match &self.target {
            Target::Options(options, dialer) => {
                let stream = dialer.dial().await?;
                // Without password and database redis-rs says nothing by itself.
                let bare = RedisConnectionInfo::default().set_skip_set_lib_name();
                let (connection, driver) =
                    MultiplexedConnection::new_with_config(&bare, stream, settings())
                        .await
                        .map_err(|error| handshake::failure(&error))?;
                let connection = RedisConnection::driven(connection, driver);
                handshake::log_in(&connection, options).await?;
                Ok(connection)
            }
            Target::Client(client) => {
                let connection = client
                    .get_multiplexed_async_connection_with_config(&settings())
                    .await
                    .map_err(|error| handshake::failure(&error))?;
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

/// Without time limits: the default of 500 ms hits blocking commands too (redis-rs#1924), and the
/// link has its own.
fn settings() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(PIPELINE_BUFFER)
}
