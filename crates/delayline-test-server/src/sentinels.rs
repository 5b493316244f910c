//! A primary with replicas, and sentinels that watch over them.

use crate::cluster::{has_online, host, words};
use crate::settings::Role;
use crate::tls::Identity;
use crate::wait::until_blocking;
use crate::{Builder, Certificate, Network, Server};

/// A primary, its replicas and their sentinels. Dropping it kills them all.
pub struct Sentinels {
    servers: Vec<Server>,
    sentinels: Vec<Server>,
    is_encrypted: bool,
}

/// Configures the servers and the sentinels: made by [`Sentinels::builder`].
///
/// Without calls: three sentinels, a primary and one replica, on TCP ports, without password.
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `start`"]
pub struct SentinelsBuilder {
    replicas: usize,
    server: Builder,
    sentinel: Builder,
    password: Option<String>,
    is_encrypted: bool,
}

impl SentinelsBuilder {
    /// Gives the primary this many replicas.
    pub fn replicas(mut self, replicas: usize) -> Self {
        self.replicas = replicas;
        self
    }

    /// Encrypts everything, with one authority for all.
    pub fn tls(mut self) -> Self {
        self.is_encrypted = true;
        self
    }

    /// The servers' default user needs this password; the sentinels know it.
    pub fn password(mut self, password: &str) -> Self {
        self.server = self.server.password(password).config("masterauth", password);
        self.password = Some(password.to_owned());
        self
    }

    /// The sentinels' default user needs this password.
    pub fn sentinel_password(mut self, password: &str) -> Self {
        self.sentinel = self.sentinel.password(password).config("sentinel sentinel-pass", password);
        self
    }

    /// Sets a directive of `redis.conf` on the primary and on each replica.
    pub fn config(mut self, name: &str, value: &str) -> Self {
        self.server = self.server.config(name, value);
        self
    }

    /// The primary and each replica keep append-only files, synced `"always"` or `"everysec"`.
    pub fn append_only(mut self, sync: &str) -> Self {
        self.server = self.server.append_only(sync);
        self
    }

    /// Runs servers and sentinels in namespaces of this network: see [`Builder::network`].
    pub fn network(mut self, network: &Network) -> Self {
        self.server = self.server.network(network);
        self.sentinel = self.sentinel.network(network);
        self
    }

    /// Starts them all and returns when they know each other.
    ///
    /// # Panics
    ///
    /// A server does not start, or the sentinels do not find each other: a test cannot continue
    /// without them.
    #[must_use = "dropping them ends them"]
    #[track_caller]
    #[expect(clippy::expect_used, reason = "documented: a test cannot go on without them")]
    pub fn start(self) -> Sentinels {
        let identity = self.is_encrypted.then(|| {
            Identity::generate(Certificate::Valid).expect("fixed parameters make a certificate")
        });
        let listening = |mut builder: Builder| match &identity {
            Some(identity) => {
                builder.settings.identity = Some(identity.clone());
                builder.tls().config("tls-replication", "yes")
            }
            None => builder.tcp(),
        };
        let server = listening(self.server).config("repl-diskless-sync-delay", "0");
        let primary = server.clone().start();
        let address = words(&primary).join(" ");
        let replica = server.config("replicaof", &address);
        let replicas = (0..self.replicas).map(|_| replica.clone().start());
        let servers: Vec<_> = std::iter::once(primary).chain(replicas).collect();
        for replica in &servers[1..] {
            until_blocking("a replica has its primary's data", || {
                replica.info("replication", "master_link_status") == "up"
            });
        }
        until_blocking("the primary has all replicas", || has_online(&servers[0], self.replicas));
        let mut sentinel = listening(self.sentinel)
            .config("sentinel monitor", &format!("{SERVICE} {address} 2"))
            .config("sentinel down-after-milliseconds", &format!("{SERVICE} 1000"))
            .config("sentinel failover-timeout", &format!("{SERVICE} 5000"));
        if let Some(password) = &self.password {
            sentinel = sentinel.config("sentinel auth-pass", &format!("{SERVICE} {password}"));
        }
        sentinel.settings.role = Role::Sentinel;
        let sentinels = (0..COUNT).map(|_| sentinel.clone().start()).collect();
        let all = Sentinels { servers, sentinels, is_encrypted: self.is_encrypted };
        let (others, replicas) = ((COUNT - 1).to_string(), self.replicas.to_string());
        for sentinel in &all.sentinels {
            until_blocking("a sentinel knows all others", || {
                field(sentinel, "num-other-sentinels") == others
                    && field(sentinel, "num-slaves") == replicas
            });
        }
        all
    }
}

impl Sentinels {
    /// Starts three sentinels, a primary and one replica.
    ///
    /// # Panics
    ///
    /// See [`SentinelsBuilder::start`].
    #[must_use = "dropping them ends them"]
    #[track_caller]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Configures the servers and the sentinels, then starts them.
    pub fn builder() -> SentinelsBuilder {
        let (server, sentinel) = (Server::builder(), Server::builder());
        SentinelsBuilder { replicas: 1, server, sentinel, password: None, is_encrypted: false }
    }

    /// `redis-sentinel://`, the sentinels and the service, without user and password.
    #[must_use]
    pub fn url(&self) -> String {
        let s = if self.is_encrypted { "s" } else { "" };
        let hosts = self.sentinels.iter().map(|it| host(it, self.is_encrypted));
        format!("redis{s}-sentinel://{}/{SERVICE}", hosts.collect::<Vec<_>>().join(","))
    }

    /// The first primary, then its replicas.
    #[must_use]
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// The sentinels.
    #[must_use]
    pub fn sentinels(&self) -> &[Server] {
        &self.sentinels
    }

    /// The primary, as the first sentinel says.
    ///
    /// # Panics
    ///
    /// The sentinel does not reply, or names another server.
    #[must_use]
    #[track_caller]
    #[expect(clippy::expect_used, reason = "documented: a test cannot go on then")]
    pub fn primary(&self) -> &Server {
        let port = field(&self.sentinels[0], "port");
        let is_it = |server: &&Server| server.port().to_string() == port;
        self.servers.iter().find(is_it).expect("one of the servers")
    }
}

/// What the sentinels call the primary.
const SERVICE: &str = "primary";
const COUNT: usize = 3;

/// One field of what a sentinel says about the service.
fn field(sentinel: &Server, name: &str) -> String {
    let reply = sentinel.command(&["SENTINEL", "MASTER", SERVICE]);
    let fields: Vec<(String, String)> = redis::from_redis_value(reply).unwrap_or_default();
    let field = fields.into_iter().find(|(field, _)| field == name);
    field.map(|(_, value)| value).unwrap_or_default()
}
