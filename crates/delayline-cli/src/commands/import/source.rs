//! The server of the old queue.

mod live;

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use delayline::{ErrorKind, Timestamp};
use delayline_core::Error;
use delayline_redis::RedisDriver;
use delayline_redis_protocol::{
    CallError, ConnectOptions, Connection as _, Driver, Resp, Topology, Value, classify,
};

pub(super) use self::live::{Followed, Looked, Taken};
use super::layout::{Attempts, Content, Kind, Layout, Place, due, redisson_payload};
use crate::args::Target;
use crate::failure::Failure;

/// Maximum number of messages that are read, sent and removed together.
pub(super) const PAGE: u64 = 100;
/// The same while their size is unknown: they may have 1 MiB each.
pub(super) const FIRST_PAGE: u64 = 16;
/// Number of bytes that a page should have.
const PAGE_BYTES: u64 = 16 * 1024 * 1024;

/// How many messages to read after these.
pub(super) fn next_page(entries: &[Entry]) -> u64 {
    let payload = |entry: &Entry| entry.payload.as_ref().map_or(0, Bytes::len);
    let bytes: usize = entries.iter().map(|entry| entry.member.len().max(payload(entry))).sum();
    let mean = (bytes / entries.len().max(1)).max(1) as u64;
    (PAGE_BYTES / mean).clamp(1, PAGE)
}

/// A message of the old queue.
pub(super) struct Entry {
    /// As it stands in its place.
    pub(super) member: Bytes,
    /// Its score, or 0 if it is in a list or a set.
    pub(super) score: f64,
    /// When it is due, or why its due time cannot be read.
    pub(super) due: Result<Timestamp, &'static str>,
    /// `None` if it has none.
    pub(super) payload: Option<Bytes>,
    /// How often it may fail, if the old queue says so, or why it must not be sent.
    pub(super) max_failures: Result<Option<u32>, &'static str>,
}

/// A separate connection: the commands of a transaction must not mix with others. Always of
/// redis-rs: fred takes an array that begins with the text `message` for a message of a channel.
pub(super) struct Source {
    connection: <RedisDriver as Driver>::Connection,
}

impl Source {
    /// Connects to the server of `url`.
    pub(super) async fn open(target: &Target, url: &str) -> Result<Self, Failure> {
        let options = url.parse().map_err(|violation| {
            Failure::from(delayline::Error::from(violation))
                .about("the old queue")
                .hint("nothing was done; --from names its Redis server")
        });
        let mut options: ConnectOptions = options?;
        let Topology::Single(address) = options.topology.clone() else {
            let sentence = "the old queue must be on a single server";
            return Err(Failure::usage(sentence)
                .hint("--from names it; for a cluster, use the node that has the keys"));
        };
        options.ca_pem = target.ca_pem()?;
        // In RESP3, scores and sets are of other types.
        options.resp = Resp::V2;
        let connect = async { RedisDriver::new(&address, &options)?.connect().await };
        let connection = within(options.connect_timeout, ErrorKind::Unreachable, connect).await;
        let connection = connection.map_err(|error| target.not_opened(&error.into()))?;
        Ok(Self { connection })
    }

    /// Adds the places of what consumers hold.
    pub(super) async fn find_consumers(&self, layout: &mut Layout) -> Result<(), Failure> {
        if let Some((consumers, prefix)) = layout.consumers.take() {
            self.check_type(&consumers, "zset").await?;
            for name in self.array("ZRANGE", &[&consumers, "0", "-1"]).await? {
                let name = String::from_utf8(name.unwrap_or_default().into()).map_err(|_| {
                    Failure::usage("a worker of the old queue has a name that is not UTF-8")
                        .hint("nothing was done; let another worker take over its tasks")
                })?;
                layout.places.push(Place { key: format!("{prefix}{name}"), kind: Kind::Set });
            }
        }
        Ok(())
    }

    /// Fails if the payloads are to be in a key that has something else.
    pub(super) async fn check_payloads(&self, layout: &Layout) -> Result<(), Failure> {
        match &layout.content {
            Content::Field { hash, .. } => self.check_type(hash, "hash").await,
            Content::Redisson { list } => self.check_type(list, "list").await,
            Content::Member | Content::String { .. } => Ok(()),
        }
    }

    /// How many messages a place has. Fails if there is something else.
    pub(super) async fn count(&self, place: &Place) -> Result<u64, Failure> {
        self.check_type(&place.key, place.kind.name()).await?;
        let command = match place.kind {
            Kind::SortedSet(_) => "ZCARD",
            Kind::List | Kind::ReversedList => "LLEN",
            Kind::Set => "SCARD",
        };
        match self.ask(command, vec![place.key.clone().into()]).await? {
            Value::Int(count) => Ok(u64::try_from(count).unwrap_or_default()),
            _ => Err(strange()),
        }
    }

    async fn check_type(&self, key: &str, expected: &str) -> Result<(), Failure> {
        let Value::Bytes(found) = self.ask("TYPE", vec![key.to_owned().into()]).await? else {
            return Err(strange());
        };
        if found != "none" && found != expected {
            let found = String::from_utf8_lossy(&found);
            let sentence = format!("the key {key} of the old queue is a {found}, not a {expected}");
            return Err(Failure::usage(sentence).hint("nothing was done; is the name right?"));
        }
        Ok(())
    }

    /// Reads up to `count` messages of a place, without the first `skip`, and watches the place and
    /// the payloads for changes by other clients.
    pub(super) async fn entries(
        &self,
        layout: &Layout,
        place: &Place,
        skip: u64,
        count: u64,
    ) -> Result<Vec<Entry>, Failure> {
        let (first, last) = (skip.to_string(), (skip + count - 1).to_string());
        let key = place.key.as_str();
        self.ask("WATCH", layout.watched(place)).await?;
        let now = |members: Vec<Option<Bytes>>| {
            members.into_iter().flatten().map(|member| (member, 0.0, Ok(Timestamp::MIN))).collect()
        };
        let members: Vec<(Bytes, f64, Result<Timestamp, _>)> = match place.kind {
            Kind::SortedSet(unit) => {
                let flat = self.array("ZRANGE", &[key, &first, &last, "WITHSCORES"]).await?;
                let pairs = flat.as_chunks::<2>().0.iter();
                let pairs = pairs.map(|[member, score]| {
                    let score = number(score.as_deref());
                    (member.clone().unwrap_or_default(), score, due(score, unit))
                });
                pairs.collect()
            }
            Kind::List => now(self.array("LRANGE", &[key, &first, &last]).await?),
            Kind::ReversedList => {
                let (first, last) = (format!("-{}", skip + count), format!("-{}", skip + 1));
                let mut members = self.array("LRANGE", &[key, &first, &last]).await?;
                members.reverse();
                now(members)
            }
            Kind::Set => {
                // In an order, so that the entries that stay are the first when the others are
                // gone.
                let mut members = self.array("SMEMBERS", &[key]).await?;
                members.sort();
                let skip = usize::try_from(skip).unwrap_or(usize::MAX);
                let count = usize::try_from(count).unwrap_or(usize::MAX);
                now(members.into_iter().skip(skip).take(count).collect())
            }
        };
        let ids: Vec<Bytes> = members.iter().map(|(member, ..)| member.clone()).collect();
        let payloads = self.payloads(layout, &ids).await?;
        let limits = self.limits(layout, place, &ids).await?;
        let entries = members.into_iter().zip(payloads).zip(limits);
        Ok(entries
            .map(|(((member, score, due), payload), max_failures)| Entry {
                member,
                score,
                due,
                payload,
                max_failures,
            })
            .collect())
    }

    async fn payloads(
        &self,
        layout: &Layout,
        ids: &[Bytes],
    ) -> Result<Vec<Option<Bytes>>, Failure> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        Ok(match &layout.content {
            Content::Member => ids.iter().cloned().map(Some).collect(),
            Content::Redisson { .. } => {
                ids.iter().map(|id| redisson_payload(id).map(|it| id.slice_ref(it))).collect()
            }
            Content::Field { hash, .. } => {
                let fields = [Bytes::from(hash.clone())].into_iter().chain(ids.iter().cloned());
                array(self.ask("HMGET", fields.collect()).await?)?
            }
            Content::String { prefix } => {
                let keys = ids.iter().map(|id| joined(prefix, id));
                array(self.ask("MGET", keys.collect()).await?)?
            }
        })
    }

    async fn limits(
        &self,
        layout: &Layout,
        place: &Place,
        ids: &[Bytes],
    ) -> Result<Vec<Result<Option<u32>, &'static str>>, Failure> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let number = |value: &Option<Bytes>| -> Option<u32> {
            std::str::from_utf8(value.as_deref()?).ok()?.parse().ok()
        };
        match &layout.attempts {
            Attempts::Default => Ok(vec![Ok(None); ids.len()]),
            Attempts::Retries { hash, held } => {
                let fields = [Bytes::from(hash.clone())].into_iter().chain(ids.iter().cloned());
                let retries = array(self.ask("HMGET", fields.collect()).await?)?;
                let deliveries = |retries| {
                    // Without a number, the old queue does not retry.
                    let retries: u32 = number(retries).unwrap_or(0);
                    match (retries, place.key == *held) {
                        (0, true) => Err("it has no retries left"),
                        (_, true) => Ok(Some(allowed(retries))),
                        (_, false) => Ok(Some(allowed(retries.saturating_add(1)))),
                    }
                };
                Ok(retries.iter().map(deliveries).collect())
            }
            Attempts::Meta { prefix } => {
                let mut limits = Vec::new();
                for id in ids {
                    let fields = ["max_attempts", "attempts"]
                        .map(|name| Bytes::from_static(name.as_bytes()));
                    let args = [joined(prefix, id)].into_iter().chain(fields);
                    let found = array(self.ask("HMGET", args.collect()).await?)?;
                    limits.push(Ok(match found.as_slice() {
                        [most, made] => number(most)
                            .map(|most| allowed(most.saturating_sub(number(made).unwrap_or(0)))),
                        _ => None,
                    }));
                }
                Ok(limits)
            }
        }
    }

    /// Fails if the server refuses to remove messages. Changes nothing.
    pub(super) async fn check_removal(&self, layout: &Layout) -> Result<(), Failure> {
        for place in &layout.places {
            self.ask("MULTI", Vec::new()).await?;
            for (command, args) in removal(layout, place, &[Bytes::new()]) {
                self.ask(command, args).await?;
            }
            self.ask("DISCARD", Vec::new()).await?;
        }
        Ok(())
    }

    /// Removes messages from their place, with all that belongs to them, in one step. Returns
    /// `false`, and removes nothing, if another client has changed them since they were read.
    pub(super) async fn remove(
        &self,
        layout: &Layout,
        place: &Place,
        members: &[Bytes],
    ) -> Result<bool, Failure> {
        if members.is_empty() {
            return Ok(true);
        }
        let transaction = async {
            self.request("MULTI", Vec::new()).await?;
            for (command, args) in removal(layout, place, members) {
                self.request(command, args).await?;
            }
            self.request("EXEC", Vec::new()).await
        };
        // The outcome may be known or not.
        let reply = transaction.await.map_err(|error| {
            Failure::from(delayline::Error::from(error)).about("the old queue").hint(IN_BOTH)
        })?;
        Ok(reply != Value::Nil)
    }

    async fn array(
        &self,
        command: &'static str,
        args: &[&str],
    ) -> Result<Vec<Option<Bytes>>, Failure> {
        let args = args.iter().map(|arg| Bytes::from((*arg).to_owned()));
        array(self.ask(command, args.collect()).await?)
    }

    async fn ask(&self, command: &'static str, args: Vec<Bytes>) -> Result<Value, Failure> {
        let reply = self.request(command, args).await;
        reply.map_err(|error| Failure::opening(&error.into()).about("the old queue"))
    }

    async fn request(&self, command: &'static str, args: Vec<Bytes>) -> Result<Value, Error> {
        let request = async {
            self.connection.request(command, args).await.map_err(|error| match error {
                CallError::Reply(line) => classify(&line),
                CallError::Failed(error) => error,
            })
        };
        within(PATIENCE, ErrorKind::Timeout, request).await
    }
}

/// A page may have 100 MiB.
const PATIENCE: Duration = Duration::from_secs(60);

const IN_BOTH: &str =
    "messages of the last page are in both queues; import again before the old consumers run";

/// The commands that remove messages from their place, with all that belongs to them.
fn removal(layout: &Layout, place: &Place, members: &[Bytes]) -> Vec<(&'static str, Vec<Bytes>)> {
    let with_key = |key: &str, rest: &mut dyn Iterator<Item = Bytes>| {
        [Bytes::from(key.to_owned())].into_iter().chain(rest).collect::<Vec<_>>()
    };
    let mut commands: Vec<(&'static str, Vec<Bytes>)> = Vec::new();
    let key = place.key.as_str();
    let all = || members.iter().cloned();
    match place.kind {
        Kind::SortedSet(_) => commands.push(("ZREM", with_key(key, &mut all()))),
        Kind::Set => commands.push(("SREM", with_key(key, &mut all()))),
        // From the end at which they are.
        Kind::List => commands.extend(all().map(|id| ("LREM", once(key, "1", id)))),
        Kind::ReversedList => commands.extend(all().map(|id| ("LREM", once(key, "-1", id)))),
    }
    match &layout.content {
        Content::Member => {}
        Content::Redisson { list } => {
            commands.extend(all().map(|id| ("LREM", once(list, "1", id))));
        }
        Content::Field { hash, companions } => {
            let endings = [""].iter().chain(*companions);
            let mut fields = endings.flat_map(|ending| {
                all().map(move |id| [id.as_ref(), ending.as_bytes()].concat().into())
            });
            commands.push(("HDEL", with_key(hash, &mut fields)));
        }
        Content::String { prefix } => {
            commands.push(("DEL", all().map(|id| joined(prefix, &id)).collect()));
        }
    }
    match &layout.attempts {
        Attempts::Default => {}
        Attempts::Retries { hash, .. } => commands.push(("HDEL", with_key(hash, &mut all()))),
        Attempts::Meta { prefix } => {
            commands.push(("DEL", all().map(|id| joined(prefix, &id)).collect()));
        }
    }
    commands
}

async fn within<T>(
    time: Duration,
    kind: ErrorKind,
    future: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    tokio::time::timeout(time, future).await.unwrap_or_else(|_| Err(Error::new(kind)))
}

fn array(value: Value) -> Result<Vec<Option<Bytes>>, Failure> {
    let Value::Array(values) = value else { return Err(strange()) };
    let element = |value| match value {
        Value::Bytes(bytes) => Ok(Some(bytes)),
        Value::Nil => Ok(None),
        Value::Int(number) => Ok(Some(number.to_string().into())),
        Value::Array(_) => Err(strange()),
    };
    values.into_iter().map(element).collect()
}

/// A score as the server writes it.
fn number(text: Option<&[u8]>) -> f64 {
    let text = text.and_then(|it| std::str::from_utf8(it).ok());
    text.and_then(|text| text.parse().ok()).unwrap_or(f64::NAN)
}

fn strange() -> Failure {
    Failure::input("the server of the old queue gave a reply of another type than expected")
}

fn joined(prefix: &str, id: &Bytes) -> Bytes {
    [prefix.as_bytes(), id].concat().into()
}

/// The arguments that remove one element of a list, the first one (`1`) or the last one (`-1`).
fn once(list: &str, count: &'static str, member: Bytes) -> Vec<Bytes> {
    vec![list.to_owned().into(), Bytes::from_static(count.as_bytes()), member]
}

fn allowed(failures: u32) -> u32 {
    failures.clamp(1, delayline::limits::MAX_ATTEMPT_LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_fewer_messages_if_they_are_large() {
        for (bytes, expected) in
            [(0, 100), (1_000, 100), (1 << 20, 16), (4 << 20, 4), (64 << 20, 1)]
        {
            let payload = Some(Bytes::from(vec![0; bytes]));
            let (member, due) = (Bytes::from_static(b"a"), Ok(Timestamp::MIN));
            let entry = Entry { member, score: 0.0, due, payload, max_failures: Ok(None) };
            assert_eq!(next_page(&[entry]), expected, "{bytes}");
        }
        assert_eq!(next_page(&[]), 100);
    }
}
