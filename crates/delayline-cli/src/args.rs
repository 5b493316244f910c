//! The command line.

mod acl;
mod backup;
mod cancel;
mod check;
mod completions;
mod dead;
mod delete_queue;
mod doctor;
mod explain;
mod forecast;
mod get;
mod groups;
mod history;
mod import;
mod limits;
mod list;
mod man;
mod queues;
mod relay;
mod reschedule;
mod schedule;
mod send;
mod serve;
mod stats;
mod switch;
mod top;
mod upgrade;
mod variables;
mod wait;
mod window;
mod work;
mod workers;

use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind::{TooManyValues, UnknownArgument};
use clap::{ArgAction, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use delayline::admin::QueueName;
use delayline::backend::Op;
use delayline::codec::Raw;
use delayline::limits::{MAX_SHARDS, MIN_SHARDS};
use delayline::{Bytes, Connect, Connection, Durability, Error, ErrorKind, Opening, Queue};
use delayline_json::harmless_line;

pub(crate) use self::acl::{Acl, Role};
pub(crate) use self::backup::Backup;
pub(crate) use self::cancel::Cancel;
pub(crate) use self::check::Check;
pub(crate) use self::completions::Completions;
pub(crate) use self::dead::{Dead, DeadGroups, DeadList, DeadVerb, Filter, Selection};
pub(crate) use self::delete_queue::DeleteQueue;
pub(crate) use self::doctor::Doctor;
pub(crate) use self::explain::Explain;
pub(crate) use self::forecast::Forecast;
pub(crate) use self::get::Get;
pub(crate) use self::groups::{GroupOrder, Groups};
pub(crate) use self::history::History;
pub(crate) use self::import::{How, Import, Live, OldQueue, Origin, Unit};
pub(crate) use self::limits::Limits;
pub(crate) use self::list::{List, Paging, State};
pub(crate) use self::man::Man;
pub(crate) use self::queues::Queues;
pub(crate) use self::relay::Relay;
pub(crate) use self::reschedule::Reschedule;
pub(crate) use self::schedule::{
    Overlap, Schedule, ScheduleApply, ScheduleList, ScheduleNamed, ScheduleNext, SchedulePut,
    ScheduleRun, ScheduleVerb, When,
};
pub(crate) use self::send::{Priority, Send};
pub(crate) use self::serve::Serve;
pub(crate) use self::stats::Stats;
pub(crate) use self::switch::{Pause, Resume};
pub(crate) use self::top::Top;
pub(crate) use self::upgrade::Upgrade;
use self::variables::{is_given, without_empty};
pub(crate) use self::wait::Wait;
pub(crate) use self::window::Window;
pub(crate) use self::work::{Post, Work};
pub(crate) use self::workers::Workers;
use crate::failure::Failure;

/// A delay queue for Redis: send messages for later delivery, handle them, and manage them.
#[derive(Parser)]
#[command(name = "delayline", version, after_help = EXIT_CODES, max_term_width = 100)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) target: Target,

    /// More output on stderr; repeat for even more
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,

    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// The queue, and how to connect.
#[derive(Clone, clap::Args)]
#[command(next_help_heading = "Queue and server")]
pub(crate) struct Target {
    /// redis://[USER[:PASSWORD]@]HOST[:PORT][/DB], redis-cluster://HOST:PORT,HOST:PORT,
    /// redis-sentinel://HOST:PORT,HOST:PORT/SERVICE, the same with rediss for TLS or valkey for
    /// redis, unix:PATH, file:DIR for durable queues in a directory, without a server, or memory:
    /// for a queue that lasts as long as the command. Put passwords into the variable, because
    /// other users can read command lines
    #[arg(
        long,
        global = true,
        env = "DELAYLINE_URL",
        hide_env_values = true,
        default_value = "redis://127.0.0.1:6379"
    )]
    pub(crate) url: String,

    /// Name of the queue: 1 to 128 of A-Z a-z 0-9 _ . : / - (# is reserved)
    #[arg(long, global = true, env = "DELAYLINE_QUEUE", value_name = "NAME")]
    pub(crate) queue: Option<String>,

    /// Number of shards of a new queue, 2 to 64, so that the nodes of a cluster share it; stored
    /// with the queue, which keeps it
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u32).range(SHARDS))]
    pub(crate) shards: Option<u32>,

    /// Redis client to use; both behave the same
    #[arg(long, global = true, value_enum, default_value_t = Driver::Redis)]
    pub(crate) driver: Driver,

    /// PEM file of certificate authorities to trust for TLS, instead of the operating system's
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,

    /// User for the sentinels, which have separate credentials
    #[arg(long, global = true, value_name = "USER", requires = "sentinel_password")]
    pub(crate) sentinel_user: Option<String>,

    /// Password for the sentinels; prefer the variable
    #[arg(
        long,
        global = true,
        value_name = "PASSWORD",
        env = SENTINEL_PASSWORD,
        hide_env_values = true
    )]
    pub(crate) sentinel_password: Option<String>,

    /// Connect to TO when the cluster or the sentinels name FROM, both HOST:PORT; repeatable
    #[arg(long, global = true, value_name = "FROM=TO", value_parser = pair)]
    pub(crate) map_address: Vec<(String, String)>,

    /// Use the server even if it may evict messages when its memory is full
    #[arg(long, global = true)]
    pub(crate) allow_eviction: bool,

    /// Open a directory (file:DIR) even if the clock is far behind its last use, and continue from
    /// the current time
    #[arg(long, global = true)]
    pub(crate) accept_clock: bool,

    /// The other place of an import.
    #[arg(skip)]
    pub(crate) other_url: Option<String>,
}

/// A Redis client.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Driver {
    /// The `redis` crate
    Redis,
    /// The `fred` crate
    Fred,
}

#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Show a delay queue at work, without a server
    Demo,
    Send(Box<Send>),
    Work(Work),
    Relay(Relay),
    Queues(Queues),
    Stats(Stats),
    Top(Top),
    Forecast(Forecast),
    History(History),
    List(List),
    Get(Get),
    Explain(Explain),
    Wait(Wait),
    Cancel(Cancel),
    Reschedule(Reschedule),
    Dead(Dead),
    Schedule(Schedule),
    Pause(Pause),
    Resume(Resume),
    Limits(Limits),
    Workers(Workers),
    Groups(Groups),
    DeleteQueue(DeleteQueue),
    Backup(Backup),
    Upgrade(Upgrade),
    Check(Check),
    Doctor(Doctor),
    Acl(Acl),
    Serve(Serve),
    Import(Import),
    Completions(Completions),
    Man(Man),
}

impl Args {
    /// Reads a command line. A word like `-5s` behind an option is its value, so that the verb can
    /// refuse it in its own words.
    pub(crate) fn of(mut words: Vec<OsString>) -> Result<Self, clap::Error> {
        let result = Self::parsed(&words);
        let is = |kind| move |error: &clap::Error| error.kind() == kind;
        let Some(option) =
            negated(&words).filter(|_| result.as_ref().is_err_and(is(UnknownArgument)))
        else {
            return result;
        };
        let value = words.remove(option + 1);
        if let Some(word) = words.get_mut(option) {
            word.push("=");
            word.push(value);
        }
        let joined = Self::of(words);
        // The option takes no value, so the first error names what the user has written.
        if joined.as_ref().is_err_and(is(TooManyValues)) { result } else { joined }
    }

    fn parsed(words: &[OsString]) -> Result<Self, clap::Error> {
        let mut command = without_empty(Self::command());
        let matches = command.try_get_matches_from_mut(words)?;
        Self::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
    }
}

/// Where an option without a value stands before a number below zero.
fn negated(words: &[OsString]) -> Option<usize> {
    let words = words.iter().map(|word| word.as_encoded_bytes());
    let mut pairs = words.clone().zip(words.skip(1)).take_while(|(word, _)| *word != b"--");
    pairs.position(|(option, value)| {
        let is_option = option.starts_with(b"--") && !option.contains(&b'=');
        is_option && matches!(value, [b'-', digit, ..] if digit.is_ascii_digit())
    })
}

impl Target {
    /// The queue's name.
    pub(crate) fn queue(&self) -> Result<&str, Failure> {
        let name = self.queue.as_deref().ok_or_else(|| {
            Failure::usage("no queue was given").hint("set it with --queue or DELAYLINE_QUEUE")
        })?;
        name.parse::<QueueName>().map_err(Error::from)?;
        Ok(name)
    }

    /// The connection options of the flags.
    pub(crate) fn connect(&self) -> Result<Connect, Failure> {
        if self.is_memory() {
            // Useful to try flags and input without a server.
            eprintln!("delayline: a queue in memory is gone when this command ends");
        }
        let connect = self.connect_to(&self.url, self.driver)?;
        Ok(if self.is_directory() { connect.beside(true) } else { connect })
    }

    /// The connection options of an import from another place. All flags but those of the server
    /// apply to both places.
    pub(crate) fn connect_from(&self, url: &str) -> Result<Connect, Failure> {
        if is_of(url, "memory") {
            let sentence = "a queue in memory has no messages for another process";
            return Err(Failure::usage(sentence).hint("--from names the server or directory"));
        }
        let mut connect = self.connect_to(url, self.driver)?;
        if url != self.url {
            connect = self.with_ca(connect)?;
        }
        Ok(if is_of(url, "file") { connect.beside(true) } else { connect })
    }

    /// Like `connect`, for workers, relays and servers: these must run in the process that has
    /// opened a directory.
    pub(crate) fn connect_to_work(&self) -> Result<Connect, Failure> {
        let connect = self.connect()?;
        Ok(if self.is_directory() { connect.beside(false) } else { connect })
    }

    /// Whether the queues are in a directory.
    pub(crate) fn is_directory(&self) -> bool {
        is_of(&self.url, "file")
    }

    /// Whether the queue ends with the command.
    pub(crate) fn is_memory(&self) -> bool {
        is_of(&self.url, "memory")
    }

    /// Whether there is a server to examine.
    pub(crate) fn has_server(&self) -> bool {
        !self.is_directory() && !self.is_memory()
    }

    /// Whether opening the directory would create its files.
    pub(crate) fn is_new_directory(&self) -> Result<bool, Failure> {
        let place = self.connect_to(&self.url, self.driver)?.to_string();
        let Some(path) = place.strip_prefix("file:") else { return Ok(false) };
        Ok(match std::fs::read_dir(path) {
            Ok(mut files) => files.next().is_none(),
            Err(error) => error.kind() == std::io::ErrorKind::NotFound,
        })
    }

    /// Refuses a durability that a directory lacks, before the directory is created.
    pub(crate) fn confirms(&self, option: &str, durability: Durability) -> Result<(), Failure> {
        match durability {
            Durability::Replicas(_) if self.is_directory() => Err(Failure::usage(format!(
                "{option} {durability}: a directory is on one disk, and always synced"
            ))),
            _ => Ok(()),
        }
    }

    /// Refuses a directory that does not exist, for verbs that would find nothing in a new one.
    pub(crate) fn refuse_new(&self, connect: &Connect) -> Result<(), Failure> {
        let place = connect.to_string();
        match place.strip_prefix("file:").map(Path::new) {
            Some(path) if path.try_exists().is_ok_and(|exists| !exists) => Err(Failure::input(
                format!("there is no directory {}", harmless_line(&path.to_string_lossy())),
            )
            .hint("the first message creates it")),
            _ => Ok(()),
        }
    }

    /// Adds the authorities of `--tls-ca`. Of the two places of an import, they are for the one
    /// that is encrypted.
    fn with_ca(&self, connect: Connect) -> Result<Connect, Failure> {
        let is_encrypted = |connect: &Connect| connect.to_string().starts_with("rediss");
        let mut is_for_other = false;
        for url in [Some(&self.url), self.other_url.as_ref()].into_iter().flatten() {
            is_for_other |= !is_encrypted(&connect) && is_encrypted(&Connect::new(url)?);
        }
        let pem = if is_for_other { None } else { self.ca_pem()? };
        Ok(match pem {
            Some(pem) => connect.ca_pem(pem),
            None => connect,
        })
    }

    /// A connection for verbs that would find nothing in a new directory.
    pub(crate) async fn connection(&self) -> Result<Connection, Failure> {
        let connect = self.connect()?;
        self.refuse_new(&connect)?;
        connect.connect().await.map_err(|error| self.not_opened(&error))
    }

    /// The certificate authorities of `--tls-ca`.
    pub(crate) fn ca_pem(&self) -> Result<Option<Vec<u8>>, Failure> {
        let read = |path: &PathBuf| {
            let shown = path.display();
            let cannot = |error| Failure::usage(format!("{shown} cannot be read: {error}"));
            let pem = std::fs::read(path).map_err(cannot)?;
            if !pem.windows(CERTIFICATE.len()).any(|part| part == CERTIFICATE) {
                return Err(Failure::usage(format!("{shown} has no certificate in PEM format")));
            }
            Ok(pem)
        };
        self.tls_ca.as_ref().map(read).transpose()
    }

    /// The options for another server, with all other flags unchanged.
    pub(crate) fn connect_to(&self, url: &str, driver: Driver) -> Result<Connect, Failure> {
        let mut connect = Connect::new(url)?
            .client(match driver {
                Driver::Redis => delayline::RedisClient::Redis,
                Driver::Fred => delayline::RedisClient::Fred,
            })
            .allow_eviction(self.allow_eviction);
        if is_of(url, "file") {
            // Commands do not wait behind one that takes long.
            connect = connect.share(true);
        }
        if self.accept_clock && url == self.url {
            connect = connect.accept_clock(true);
        }
        if url == self.url {
            connect = self.with_ca(connect)?;
        }
        let has_sentinels = connect.to_string().contains("-sentinel://");
        if let Some(password) = &self.sentinel_password
            && url == self.url
            && (has_sentinels
                || self.sentinel_user.is_some()
                || is_given(Some(password), SENTINEL_PASSWORD))
        {
            // Without sentinels, this is refused.
            let user = self.sentinel_user.as_deref().unwrap_or_default();
            connect = connect.sentinel_login(user, password);
        }
        for (from, to) in self.map_address.iter().filter(|_| url == self.url) {
            connect = connect.map_address(from, to);
        }
        Ok(connect)
    }

    /// The queue, whose payloads are bytes.
    pub(crate) async fn open(&self) -> Result<Queue<Bytes, Raw>, Failure> {
        let queue = self.queue()?;
        self.open_on(self.connect()?, queue).await
    }

    /// Like `open`, for workers.
    pub(crate) async fn open_to_work(&self) -> Result<Queue<Bytes, Raw>, Failure> {
        let queue = self.queue()?;
        self.open_on(self.connect_to_work()?, queue).await
    }

    /// Like `open`, but only if the server has the queue. With a misspelt name, most verbs would
    /// find nothing, or create a queue.
    pub(crate) async fn open_known(&self) -> Result<Queue<Bytes, Raw>, Failure> {
        self.queue()?;
        let connection = self.connection().await?;
        // Without the number of shards, which would be stored.
        let queue = self.open_as_stored(&connection).await?;
        if !self.is_known(&connection, &queue).await? {
            return Err(self.unknown());
        }
        if self.shards.is_none() { Ok(queue) } else { self.open_in(&connection).await }
    }

    /// Whether the queue was ever changed. A queue in memory is always new.
    pub(crate) async fn is_known(
        &self,
        connection: &Connection,
        queue: &Queue<Bytes, Raw>,
    ) -> Result<bool, Failure> {
        if self.is_memory() {
            return Ok(true);
        }
        let applied = match queue.apply(&Op::Stats).await {
            Ok(applied) => applied,
            // The verb itself may not need this permission.
            Err(error) if error.kind() == &ErrorKind::PermissionDenied => return Ok(true),
            Err(error) => return Err(error.into()),
        };
        Ok(delayline_admin::is_known(connection, self.queue()?, &applied).await?)
    }

    /// There is no such queue.
    pub(crate) fn unknown(&self) -> Failure {
        let name = harmless_line(self.queue.as_deref().unwrap_or_default());
        let place = if self.is_directory() { "directory" } else { "server" };
        Failure::input(format!("the {place} has no queue {name}")).hint(
            "`delayline queues` lists them; a message or --create of pause and limits makes one",
        )
    }

    /// The queue over a connection, with the number of shards that is stored with it.
    pub(crate) async fn open_as_stored(
        &self,
        connection: &Connection,
    ) -> Result<Queue<Bytes, Raw>, Failure> {
        let opened = connection.queue(self.queue()?).await;
        Ok(opened.map_err(|error| self.not_opened(&error))?.codec(Raw))
    }

    /// The queue over a connection. A number of shards that was given is stored with a new queue.
    pub(crate) async fn open_in(
        &self,
        connection: &Connection,
    ) -> Result<Queue<Bytes, Raw>, Failure> {
        let opened = self.opening(connection, self.queue()?).await;
        Ok(opened.map_err(|error| self.not_opened(&error))?.codec(Raw))
    }

    fn opening(&self, connection: &Connection, queue: &str) -> Opening<Queue<Bytes>> {
        let opening = connection.queue(queue);
        match self.shards {
            Some(shards) => opening.shards(shards),
            None => opening,
        }
    }

    /// A queue at another place.
    pub(crate) async fn open_on(
        &self,
        connect: Connect,
        queue: &str,
    ) -> Result<Queue<Bytes, Raw>, Failure> {
        let opened = async { self.opening(&connect.connect().await?, queue).await };
        let opened = opened.await.map_err(|error| self.not_opened(&error))?;
        Ok(opened.codec(Raw))
    }

    /// Why the queue could not be opened.
    pub(crate) fn not_opened(&self, error: &Error) -> Failure {
        let failure = Failure::opening(error);
        if error.kind() == &ErrorKind::Tls && self.tls_ca.is_some() {
            return failure
                .hint("is the authority of --tls-ca the one that signed its certificate?");
        }
        failure
    }
}

/// Whether the URL has this scheme.
fn is_of(url: &str, scheme: &str) -> bool {
    url.split_once(':').is_some_and(|(name, _)| name.eq_ignore_ascii_case(scheme))
}

/// Reads `FROM=TO`.
fn pair(text: &str) -> Result<(String, String), String> {
    let (from, to) = text.split_once('=').ok_or("it must be FROM=TO")?;
    Ok((from.to_owned(), to.to_owned()))
}

impl From<Priority> for delayline::message::Priority {
    fn from(priority: Priority) -> Self {
        match priority {
            Priority::Urgent => Self::Urgent,
            Priority::High => Self::High,
            Priority::Normal => Self::Normal,
            Priority::Low => Self::Low,
        }
    }
}

/// The variable for `--sentinel-password`.
const SENTINEL_PASSWORD: &str = "DELAYLINE_SENTINEL_PASSWORD";

/// What `--shards` may be.
const SHARDS: RangeInclusive<i64> = MIN_SHARDS as i64..=MAX_SHARDS as i64;

/// The beginning of each certificate in a file.
const CERTIFICATE: &[u8] = b"-----BEGIN CERTIFICATE-----";

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  part of the work was not done: an input line is invalid, a queue or message is unknown, a
     message is in the wrong state, or a different message has the same id. Or a check found a
     problem. Also after Ctrl-C while sending a file, importing, redriving or purging, and if you
     answer no to a question
  2  the command line is wrong, or a value is out of range
  3  the server is unreachable, or refuses
  4  the reply was lost, or the operation was not confirmed: it may have been executed, and can be
     repeated with the same ids, unless it reuses finished ids
  5  any other error, for example if output cannot be written";
