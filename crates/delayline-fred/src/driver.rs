//! Opens connections with fred, with all of fred's automatic behaviour switched off.

use std::fmt;

use async_trait::async_trait;
use delayline_core::{Error, ErrorKind};
use delayline_redis_protocol::{
    Address, CallError, ConnectOptions, Connection as _, Driver, MAX_CALLS_IN_FLIGHT, Resp,
    SocketPath, TCP_UPKEEP, reachable_address,
};
use fred::clients::Client;
use fred::interfaces::ClientLike;
use fred::socket2::TcpKeepalive;
use fred::types::RespVersion;
use fred::types::config::{
    Blocking, Config, ConnectionConfig, PerformanceConfig, Server, ServerConfig, TcpConfig,
    UnresponsiveConfig,
};
use tokio::sync::OnceCell;

use crate::connection::FredConnection;

/// Opens connections with fred: one [`Client`] each, never reused.
///
/// fred's own handling of lost connections is switched off, because it sends commands again. Four
/// limits are fred's:
///
/// - Database numbers end at 255 ([`ErrorKind::Unsupported`]).
/// - Without a login, fred begins a connection with `PING`. A default user without the permission
///   for it ([`ErrorKind::PermissionDenied`]), or on a server that has renamed or removed it
///   ([`ErrorKind::Unsupported`]), has to be named: `redis://default@host`. On such a server, a
///   default user with a password cannot log in at all.
/// - fred treats a server's reply that it requires no password as success. To refuse such a
///   password, the first connection with a password for the default user is preceded by one without
///   it.
/// - fred closes a connection on which a cluster refuses a call (`CLUSTERDOWN`). The refused call
///   is reported as not executed. Calls that waited for their replies behind it are
///   [`Ambiguous`](delayline_core::ErrorClass::Ambiguous). To have few of these, a new connection
///   sends scripts one by one until the first reply.
pub struct FredDriver {
    /// Shown by `Debug`.
    address: String,
    config: Config,
    connection: ConnectionConfig,
    version: RespVersion,
    /// Set once the server is known to require a password.
    password_is_required: OnceCell<()>,
}

impl FredDriver {
    /// Creates the driver of [`transport`](crate::transport).
    pub(crate) fn from_client(client: &Client) -> Result<Self, Error> {
        let config = client.client_config();
        let address = match &config.server {
            ServerConfig::Centralized { server } => server.to_string(),
            ServerConfig::Unix { path } => format!("unix:{}", path.display()),
            _ => {
                let advice = "connect with a redis-cluster:// or redis-sentinel:// URL";
                let kind = ErrorKind::Unsupported("a client for several servers");
                return Err(Error::with_detail(kind, advice));
            }
        };
        Ok(Self::configured(address, config, client.connection_config().clone()))
    }

    fn configured(address: String, config: Config, connection: ConnectionConfig) -> Self {
        let version = config.version;
        let config = Config {
            fail_fast: true,
            blocking: Blocking::Block,
            // With RESP3, fred sends the password unquoted in an inline `HELLO`: a space makes it
            // fail, and a line break makes it a command. So log in with `AUTH` first.
            version: RespVersion::RESP2,
            ..config
        };
        let mut connection = ConnectionConfig {
            // With more, fred sends a command again after a lost reply.
            max_command_attempts: 1,
            // With more, it would do the same on `MOVED` and `ASK`.
            max_redirections: 0,
            max_command_buffer_len: MAX_CALLS_IN_FLIGHT,
            // The link replaces a connection after such a reply, without losing other replies.
            reconnect_on_auth_error: false,
            reconnect_errors: Vec::new(),
            // The link limits the time of every call; a blocking command may take long to reply.
            unresponsive: UnresponsiveConfig::default(),
            auto_client_setname: false,
            ..connection
        };
        connection.tcp = TcpConfig {
            nodelay: Some(true),
            keepalive: connection.tcp.keepalive.or_else(|| Some(keepalive())),
            ..connection.tcp
        };
        #[cfg(target_os = "linux")]
        connection.tcp.user_timeout.get_or_insert(TCP_UPKEEP.user_timeout);
        Self { address, config, connection, version, password_is_required: OnceCell::new() }
    }

    /// Returns whether there is a password that the server may not require.
    fn has_password_of_default_user(&self) -> bool {
        let user = self.config.username.as_deref().unwrap_or("default");
        user == "default" && self.config.password.as_ref().is_some_and(|it| !it.is_empty())
    }

    /// Fails if the server does not require the password, which is then most likely meant for
    /// another server.
    async fn require_password(&self) -> Result<(), Error> {
        let connection =
            self.start(Config { username: None, password: None, ..self.config.clone() }).await?;
        match connection.request("PING", Vec::new()).await {
            Err(CallError::Failed(error)) if error.kind() == &ErrorKind::Authentication => Ok(()),
            // Without the permission for `PING`, the default user is logged in as well.
            Err(CallError::Failed(error)) if error.kind() != &ErrorKind::PermissionDenied => {
                Err(error)
            }
            _ => Err(Error::with_detail(
                ErrorKind::Authentication,
                "the default user of the server logs in without any password",
            )),
        }
    }

    /// Starts a connection. Its client ends with it, and fails all requests in progress, because it
    /// has no reconnect policy. The link sets time limits.
    ///
    /// # Errors
    ///
    /// That of [`SocketPath::of`], or of [`reachable_address`].
    async fn start(&self, mut config: Config) -> Result<FredConnection, Error> {
        let connection = Some(self.connection.clone());
        let mut socket = None;
        match &mut config.server {
            ServerConfig::Unix { path } => {
                let short = SocketPath::of(path)?;
                short.as_path().clone_into(path);
                socket = Some(short);
            }
            // In a build without TLS, nothing can name the host for TLS that the program has.
            ServerConfig::Centralized { server } if cfg!(feature = "tls") || !self.uses_tls() => {
                locate(server).await?;
            }
            _ => {}
        }
        let client = Client::new(config, Some(PerformanceConfig::default()), connection, None);
        Ok(FredConnection::start(client, socket, self.uses_tls()))
    }

    fn uses_tls(&self) -> bool {
        self.config.uses_tls()
    }
}

/// Replaces the name of a host by an address. Of several addresses, fred would wait for the first
/// as long as the attempt may take.
async fn locate(server: &mut Server) -> Result<(), Error> {
    // A host out of one of fred's URLs has the brackets of an IPv6 address.
    let host = server.host.trim_matches(BRACKETS);
    // Not of `ip`, which leaves out the scope of a link-local address.
    let address = reachable_address(host, server.port).await?.to_string();
    #[cfg(feature = "tls")]
    server.tls_server_name.get_or_insert_with(|| host.into());
    let address = address.rsplit_once(':').map_or(&*address, |(address, _port)| address);
    server.host = address.trim_matches(BRACKETS).into();
    Ok(())
}

const BRACKETS: [char; 2] = ['[', ']'];

#[async_trait]
impl Driver for FredDriver {
    type Connection = FredConnection;

    fn new(address: &Address, options: &ConnectOptions) -> Result<Self, Error> {
        let server = match address {
            Address::Tcp { host, port } | Address::Tls { host, port } => {
                ServerConfig::Centralized { server: Server::new(host.as_str(), *port) }
            }
            Address::Unix(path) => ServerConfig::Unix { path: path.clone() },
        };
        let number = u8::try_from(options.database)
            .map_err(|_| Error::new(ErrorKind::Unsupported("a database number above 255")))?;
        #[cfg_attr(not(feature = "tls"), expect(unused_mut, reason = "only TLS changes it"))]
        let mut config = Config {
            server,
            username: options.username.clone(),
            password: options.exposed_login().map(|(_, password)| password.to_owned()),
            version: match options.resp {
                Resp::V2 => RespVersion::RESP2,
                Resp::V3 => RespVersion::RESP3,
            },
            database: Some(number).filter(|&number| number != 0),
            ..Config::default()
        };
        if let Address::Tls { .. } = address {
            #[cfg(feature = "tls")]
            {
                use fred::types::config::TlsConnector;

                let tls = delayline_redis_protocol::tls::client_config(options.ca_pem.as_deref())?;
                config.tls = Some(TlsConnector::from(tls).into());
            }
            #[cfg(not(feature = "tls"))]
            {
                return Err(Error::new(ErrorKind::Unsupported("TLS in this build")));
            }
        }
        let mut connection = ConnectionConfig::default();
        // fred's own limits are shorter than long ones of the link, which limits every attempt.
        for limit in [&mut connection.connection_timeout, &mut connection.internal_command_timeout]
        {
            *limit = options.connect_timeout.max(*limit);
        }
        Ok(Self::configured(address.to_string(), config, connection))
    }

    fn database(&self) -> u32 {
        self.config.database.unwrap_or(0).into()
    }

    async fn connect(&self) -> Result<FredConnection, Error> {
        if self.has_password_of_default_user() {
            self.password_is_required.get_or_try_init(|| self.require_password()).await?;
        }
        let connection = self.start(self.config.clone()).await?;
        if self.version == RespVersion::RESP3 {
            connection.switch_to_resp3().await?;
        }
        Ok(connection)
    }
}

impl fmt::Debug for FredDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address)
    }
}

fn keepalive() -> TcpKeepalive {
    TcpKeepalive::new()
        .with_time(TCP_UPKEEP.keepalive_idle)
        .with_interval(TCP_UPKEEP.keepalive_interval)
        .with_retries(TCP_UPKEEP.keepalive_probes)
}

#[cfg(test)]
mod tests {
    #[cfg(feature = "tls")]
    use std::net::IpAddr;
    use std::time::Duration;

    use super::*;

    #[cfg(feature = "tls")]
    #[tokio::test]
    async fn tls_checks_the_name_of_the_host_and_not_its_address() {
        let mut server = Server::new("localhost", 6379);
        locate(&mut server).await.unwrap();
        assert!(server.host.parse::<IpAddr>().unwrap().is_loopback());
        assert_eq!(server.tls_server_name.as_deref(), Some("localhost"));
        let mut server = Server::new("[::1]", 6379);
        locate(&mut server).await.unwrap();
        assert_eq!(&*server.host, "::1");
    }

    #[test]
    fn an_attempt_to_connect_may_take_as_long_as_the_caller_says() {
        let minute = Duration::from_secs(60);
        let mut options: ConnectOptions = "redis://a:1".parse().unwrap();
        options.connect_timeout = minute;
        let address = Address::Tcp { host: "a".to_owned(), port: 1 };
        let driver = FredDriver::new(&address, &options).unwrap();
        assert!(driver.connection.connection_timeout >= minute);
        assert!(driver.connection.internal_command_timeout >= minute);
    }
}
