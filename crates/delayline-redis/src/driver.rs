//! Opens connections with redis-rs.

use std::fmt;

use async_trait::async_trait;
use delayline_core::{Error, ErrorKind};
use delayline_redis_protocol::{
    Address, ConnectOptions, Dialer, Driver, SocketPath, TCP_UPKEEP, TlsRefusal, log_in,
};
use redis::aio::{MultiplexedConnection, SendError};
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, ProtocolVersion,
    RedisConnectionInfo,
};
use tokio::sync::oneshot;

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
    /// We connect and log in: every failure has its kind.
    Options(Box<ConnectOptions>, Dialer),
    /// The client connects and switches to RESP3, for which it has to log in. Then we log in as
    /// with options, because redis-rs takes a password that the server does not require, and keeps
    /// the codes of some refusals to itself.
    Client(Box<Client>, Box<ConnectOptions>),
}

impl RedisDriver {
    /// The driver of [`transport`](crate::transport).
    pub(crate) fn from_client(client: &Client) -> Result<Self, Error> {
        let info = client.get_connection_info();
        let options = options_of(info)?;
        // Only with RESP3 does redis-rs take a push sender, which shows the end of a connection.
        let login = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3).set_db(0);
        let tcp = upkept(info.tcp_settings().clone());
        let info = info.clone().set_tcp_settings(tcp).set_redis_settings(login);
        let client = Client::open(info).map_err(|error| failure(&error))?;
        let address = options.to_string();
        Ok(Self { address, target: Target::Client(Box::new(client), Box::new(options)) })
    }
}

/// The address, the login and the database of a client.
fn options_of(info: &ConnectionInfo) -> Result<ConnectOptions, Error> {
    let address = match info.addr().clone() {
        ConnectionAddr::Tcp(host, port) => Address::Tcp { host, port },
        ConnectionAddr::TcpTls { host, port, .. } => Address::Tls { host, port },
        ConnectionAddr::Unix(path) => Address::Unix(path),
        _ => return Err(Error::new(ErrorKind::Unsupported("the client's address"))),
    };
    let login = info.redis_settings();
    let mut options = ConnectOptions::new(address);
    options.username = login.username().map(str::to_owned);
    options.password = login.password().map(Into::into);
    options.database = u32::try_from(login.db())
        .map_err(|_| Error::new(ErrorKind::Unsupported("the database number")))?;
    Ok(options)
}

/// The settings of a client, with those of all drivers where it has none.
fn upkept(settings: TcpSettings) -> TcpSettings {
    // Off by default, which halves the throughput (redis-rs#2195).
    let mut settings = settings.set_nodelay(true);
    if settings.keepalive().is_none() {
        let keepalive = TcpKeepalive::new()
            .with_time(TCP_UPKEEP.keepalive_idle)
            .with_interval(TCP_UPKEEP.keepalive_interval)
            .with_retries(TCP_UPKEEP.keepalive_probes);
        settings = settings.set_keepalive(keepalive);
    }
    #[cfg(target_os = "linux")]
    if settings.user_timeout().is_none() {
        settings = settings.set_user_timeout(TCP_UPKEEP.user_timeout);
    }
    settings
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

    fn database(&self) -> u32 {
        let (Target::Options(options, _) | Target::Client(_, options)) = &self.target;
        options.database
    }

    async fn connect(&self) -> Result<RedisConnection, Error> {
        match &self.target {
            Target::Options(options, dialer) => {
                let stream = dialer.dial().await?;
                let refusal = stream.tls_refusal();
                // Without a password and a database, redis-rs sends nothing on its own.
                let bare = RedisConnectionInfo::default().set_skip_set_lib_name();
                let (connection, driver) =
                    MultiplexedConnection::new_with_config(&bare, stream, settings())
                        .await
                        .map_err(|error| failure(&error))?;
                let connection = RedisConnection::driven(connection, driver, refusal);
                log_in(&connection, options).await?;
                Ok(connection)
            }
            Target::Client(client, options) => {
                // redis-rs drops the push sender with the connection.
                let (alive, ended) = oneshot::channel::<()>();
                let settings = settings().set_push_sender(move |_| {
                    let _ = &alive;
                    Ok::<_, SendError>(())
                });
                let (client, _socket) = reachable(client)?;
                let connection = client
                    .get_multiplexed_async_connection_with_config(&settings)
                    .await
                    .map_err(|error| failure(&error))?;
                drop(settings);
                let ended = async { drop(ended.await) };
                let connection = RedisConnection::driven(connection, ended, TlsRefusal::default());
                log_in(&connection, options).await?;
                Ok(connection)
            }
        }
    }
}

impl fmt::Debug for RedisDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address)
    }
}

/// The client with a path that is short enough for the address of a socket.
fn reachable(client: &Client) -> Result<(Client, Option<SocketPath>), Error> {
    let info = client.get_connection_info();
    let ConnectionAddr::Unix(path) = info.addr() else { return Ok((client.clone(), None)) };
    let socket = SocketPath::of(path)?;
    let info = info.clone().set_addr(ConnectionAddr::Unix(socket.as_path().to_owned()));
    Ok((Client::open(info).map_err(|error| failure(&error))?, Some(socket)))
}

/// No time limits: the default of 500 ms also ends blocking commands (redis-rs#1924), and the link
/// has its own.
fn settings() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(PIPELINE_BUFFER)
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::time::Duration;

    use delayline_redis_protocol::Connection as _;
    use delayline_test_server::Server;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn the_end_of_a_connection_of_a_client_is_noticed_without_a_request() {
        let server = Server::builder().tcp().start();
        let driver = RedisDriver::from_client(&Client::open(server.url()).unwrap()).unwrap();
        let connection = driver.connect().await.unwrap();
        connection.request("PING", Vec::new()).await.ok().unwrap();
        assert!(!connection.is_closed());

        server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
        let left_behind = connection.driver.unless_ended(pending::<()>());
        let error = timeout(Duration::from_secs(30), left_behind).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::ConnectionLost);
        assert!(connection.is_closed());
    }

    #[test]
    fn the_sockets_of_a_client_are_watched_over() {
        let settings = |client: Client| {
            let driver = RedisDriver::from_client(&client).unwrap();
            let Target::Client(client, _) = driver.target else { panic!("other target") };
            client.get_connection_info().tcp_settings().clone()
        };
        let client = Client::open("redis://127.0.0.1").unwrap();
        let info = client.get_connection_info().clone();
        let filled = settings(client);
        assert!(filled.nodelay() && filled.keepalive().is_some());
        #[cfg(target_os = "linux")]
        {
            assert_eq!(filled.user_timeout(), Some(TCP_UPKEEP.user_timeout));
            let own = TcpSettings::default().set_user_timeout(Duration::from_secs(1));
            let kept = settings(Client::open(info.set_tcp_settings(own)).unwrap());
            assert_eq!(kept.user_timeout(), Some(Duration::from_secs(1)));
        }
    }

    #[tokio::test]
    async fn a_refused_login_of_a_client_is_an_authentication_error() {
        let server = Server::builder().tcp().password("hunter2").start();
        for password in ["", "*3", "hunter 2"] {
            let url = server.url_with_login("", password);
            let driver = RedisDriver::from_client(&Client::open(url).unwrap()).unwrap();
            let error = driver.connect().await.err().unwrap();
            assert_eq!(error.kind(), &ErrorKind::Authentication, "{error}");
            assert!(!error.to_string().contains("hunter"), "{error}");
        }
    }
}
