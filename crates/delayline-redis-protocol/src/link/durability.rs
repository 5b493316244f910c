//! What a server can confirm, found out once for each connection.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use delayline_core::{Durability, Error, ErrorKind};

use super::channel::{Channel, Held};
use super::dial::before_sending;
use super::driver::Driver;
use super::facts::Proof;
use crate::info::field;
use crate::{CallError, Value};

/// Which process the connection leads to.
pub(crate) async fn run_id<'a, D: Driver>(
    channel: &Channel<D>,
    held: &'a Arc<Held<D::Connection>>,
    limit: Duration,
) -> Result<&'a str, Error> {
    let ask = async {
        let info = info(channel, held, limit).await?;
        let unnamed = || refusal("Redis", "reports no run_id in INFO, which identifies a server");
        field(&info, "run_id").map(str::to_owned).ok_or_else(unnamed)
    };
    held.facts.known(&held.facts.run_id, limit, ask).await.map(String::as_str)
}

/// What has to be shown for `durability`; `None` if a reply of the server shows it already.
///
/// # Errors
///
/// [`ErrorKind::Unsupported`]: the server cannot show it.
pub(crate) async fn proof_of<D: Driver>(
    channel: &Channel<D>,
    held: &Arc<Held<D::Connection>>,
    limit: Duration,
    durability: Durability,
) -> Result<Option<Proof>, Error> {
    durability.validate()?;
    match durability {
        Durability::None => Ok(None),
        Durability::Replicas(count) => Ok(Some(Proof::Replicas(count))),
        Durability::Disk => {
            let ask = disk_proof(channel, held, limit);
            held.facts.known(&held.facts.disk, limit, ask).await.copied()
        }
        _ => Err(Error::with_detail(ErrorKind::Unsupported("durability"), durability.to_string())),
    }
}

/// Asks before anything is sent whether the user may wait at all.
pub(crate) async fn may_wait<D: Driver>(
    channel: &Channel<D>,
    held: &Arc<Held<D::Connection>>,
    limit: Duration,
    proof: Proof,
) -> Result<(), Error> {
    let facts = &held.facts;
    let (fact, command, args) = match proof {
        Proof::Replicas(_) => (&facts.may_wait, "WAIT", &["0", "1"][..]),
        Proof::File => (&facts.may_wait_for_disk, "WAITAOF", &["0", "0", "1"][..]),
    };
    let args = args.iter().copied().map(Bytes::from).collect();
    let ask = async { channel.request(held, limit, command, args).await.map(drop) };
    facts.known(fact, limit, ask).await.map(drop).map_err(unsent)
}

/// How the server shows that its disk has something.
async fn disk_proof<D: Driver>(
    channel: &Channel<D>,
    held: &Arc<Held<D::Connection>>,
    limit: Duration,
) -> Result<Option<Proof>, Error> {
    let info = info(channel, held, limit).await?;
    let server = Server::of(&info);
    if field(&info, "aof_enabled") != Some("1") {
        return Err(refusal(&server.name, "has no append-only file; set appendonly to yes"));
    }
    let args = ["GET", "*appendfsync*"].map(Bytes::from).to_vec();
    let settings = match channel.request(held, limit, "CONFIG", args).await {
        Ok(Value::Array(settings)) => settings,
        Err(CallError::Failed(error)) => return Err(before_sending(error)),
        Ok(_) | Err(CallError::Reply(_)) => Vec::new(),
    };
    let is = |name: &'static str, value: &'static str| {
        let pair = [name, value].map(|text| Value::Bytes(text.into()));
        settings.chunks_exact(2).any(|setting| setting == pair)
    };
    if server.waits_for_its_disk {
        // It does not sync then, so it would never confirm. A user who may not ask finds out later.
        if is("appendfsync", "no") {
            let why =
                "has appendfsync no, so it never confirms a sync; set it to everysec or always";
            return Err(refusal(&server.name, why));
        }
        return Ok(Some(Proof::File));
    }
    // Where each write is synced before its reply is sent, the reply is the proof.
    if is("appendfsync", "always") && is("no-appendfsync-on-rewrite", "no") {
        return Ok(None);
    }
    let why = if settings.is_empty() {
        "does not wait for its disk (WAITAOF), and the user may not ask whether appendfsync is always \
         (CONFIG GET)"
    } else {
        "does not wait for its disk (WAITAOF); set appendfsync to always and \
         no-appendfsync-on-rewrite to no, or use Redis 7.2 or 8"
    };
    Err(refusal(&server.name, why))
}

async fn info<D: Driver>(
    channel: &Channel<D>,
    held: &Arc<Held<D::Connection>>,
    limit: Duration,
) -> Result<String, Error> {
    match channel.request(held, limit, "INFO", Vec::new()).await {
        Ok(Value::Bytes(text)) => Ok(String::from_utf8_lossy(&text).into_owned()),
        Ok(_) => Err(Error::with_detail(ErrorKind::Busy, "the reply to INFO has the wrong type")),
        Err(error) => Err(unsent(error)),
    }
}

/// What a server is.
struct Server {
    /// With its version: `Redis 7.0.15`.
    name: String,
    /// A positive answer to `WAITAOF` means that the disk has it.
    waits_for_its_disk: bool,
}

impl Server {
    /// Reads `INFO`.
    ///
    /// Redis 7.4, and with it Valkey and Redict, answers `WAITAOF` up to a second before the disk
    /// has the write, unless appendfsync is always (redis#13793). Of others nothing is known.
    fn of(info: &str) -> Self {
        let redis = field(info, "redis_version").unwrap_or("of an unknown version");
        let other = [("Valkey", "valkey_version"), ("Redict", "redict_version")]
            .into_iter()
            .find_map(|(name, version)| Some((name, field(info, version)?)));
        let is_redis = other.is_none() && field(info, "server_name").is_none_or(|it| it == "redis");
        let (name, version) = other.unwrap_or(("Redis", redis));
        let mut numbers = version.split('.').map_while(|number| number.parse::<u32>().ok());
        let release = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        let is_fit = release >= (8, 0) || ((7, 2)..(7, 4)).contains(&release);
        Self { name: format!("{name} {version}"), waits_for_its_disk: is_redis && is_fit }
    }
}

fn refusal(server: &str, why: &str) -> Error {
    Error::with_detail(ErrorKind::Unsupported("the durability"), format!("{server} {why}"))
}

/// A call that was to follow was not sent.
fn unsent(error: CallError) -> Error {
    before_sending(error.into_error())
}
