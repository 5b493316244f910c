//! `delayline import`.

use clap::{Subcommand, ValueEnum};
use delayline::Durability;

/// Move the waiting messages of another queue into this one
///
/// Each message keeps its due time and its payload. It is removed from the old queue once this
/// queue has accepted it. From another queue of Delayline, it also keeps its id and settings, and
/// workers of both can run. From any other queue, first stop the old consumers, which would handle
/// some messages twice. Also stop the old producers, unless you use --live.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Import {
    #[command(subcommand)]
    pub(crate) from: Origin,
}

/// The kind of queue to import from.
#[derive(Subcommand)]
pub(crate) enum Origin {
    /// Another queue of Delayline: another name, number of shards, server or directory
    Queue {
        /// Name of the queue; if it is --queue itself: the messages that were sent past its shards
        name: String,

        #[command(flatten)]
        live: Live,

        #[command(flatten)]
        how: How,
    },
    #[command(flatten)]
    Other(OldQueue),
}

/// A queue of another library, on Redis.
#[derive(Subcommand)]
pub(crate) enum OldQueue {
    /// A sorted set whose scores are due times
    Zset {
        /// Key of the sorted set; its members are the payloads, unless --payloads is given
        key: String,

        /// Unit of the scores, which count from 1970
        #[arg(long, value_enum)]
        unit: Unit,

        /// Key of a hash with the payloads; then the members are the ids
        #[arg(long, value_name = "KEY")]
        payloads: Option<String>,

        #[command(flatten)]
        live: Live,

        #[command(flatten)]
        how: How,
    },
    /// A queue of HDT3213/delayqueue (Go)
    Hdt3213 {
        /// Name of the queue
        name: String,

        /// Prefix of its keys, if the queue was created with UseCustomPrefix
        #[arg(long, default_value = "dp")]
        prefix: String,

        /// The queue was created with UseHashTagKey
        #[arg(long)]
        hash_tag: bool,

        #[command(flatten)]
        how: How,
    },
    /// An RDelayedQueue of Redisson (Java): entries that are not yet in its destination queue
    Redisson {
        /// Name of the destination queue
        name: String,

        #[command(flatten)]
        how: How,
    },
    /// A queue of rsmq or rsmq_async
    Rsmq {
        /// Name of the queue
        name: String,

        /// Namespace of its keys
        #[arg(long, default_value = "rsmq")]
        namespace: String,

        /// Unit of its scores: `us` if rsmq_async was built with `break-js-comp`
        #[arg(long, value_enum, default_value_t = Unit::Ms)]
        unit: Unit,

        #[command(flatten)]
        how: How,
    },
    /// A queue of apalis-redis 1.0
    Apalis {
        /// Name of the queue
        name: String,

        #[command(flatten)]
        how: How,
    },
}

/// While the old producers still run.
#[derive(clap::Args)]
pub(crate) struct Live {
    /// Move messages as the old producers add them, until Ctrl-C or SIGTERM; a sorted set must be
    /// on the server of --url
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) live: bool,

    /// Exit when no message is left to move
    #[arg(long, requires = "live")]
    pub(crate) until_empty: bool,

    /// Interval between polls when there is nothing to move: 10ms to 1h
    #[arg(long, value_name = "DURATION", requires = "live", default_value = "1s")]
    pub(crate) interval: String,
}

/// The unit of the scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Unit {
    /// Seconds
    S,
    /// Milliseconds
    Ms,
    /// Microseconds
    Us,
}

/// Options for every kind of queue.
#[derive(clap::Args)]
pub(crate) struct How {
    /// Server of the old queue, if it is not --url: redis://, rediss:// or unix:PATH, and for a
    /// queue of Delayline any URL that --url takes; --tls-ca applies to both
    #[arg(long = "from", value_name = "URL", env = "DELAYLINE_FROM_URL", hide_env_values = true)]
    pub(crate) from_url: Option<String>,

    /// Change nothing: read and check the messages, without comparing their ids with this queue; of
    /// a queue of Delayline, only count them
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// What to wait for before removing a message from the old queue: only the server (none), also
    /// N replicas (replicas=N), or the server's disk (disk)
    #[arg(long, value_name = "WHERE", default_value_t)]
    pub(crate) durability: Durability,

    /// Skip confirmation; required without a terminal
    #[arg(long, short)]
    pub(crate) yes: bool,

    /// Print the summary as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

impl OldQueue {
    /// How to continue while the old producers run, if they do.
    pub(crate) const fn live(&self) -> Option<&Live> {
        match self {
            Self::Zset { live, .. } if live.live => Some(live),
            _ => None,
        }
    }

    pub(crate) const fn how(&self) -> &How {
        match self {
            Self::Zset { how, .. }
            | Self::Hdt3213 { how, .. }
            | Self::Redisson { how, .. }
            | Self::Rsmq { how, .. }
            | Self::Apalis { how, .. } => how,
        }
    }
}

const HELP: &str = "\
Examples:
  delayline --queue=orders-16 --shards=16 import queue orders --live --yes
  delayline --queue=orders import queue orders --from file:/var/lib/orders --yes
  delayline import zset reminders --unit s --dry-run
  delayline --queue=reminders import zset reminders --unit s --payloads reminders:data --yes
  delayline --queue=reminders import zset reminders --unit s --live --yes
  delayline --queue=orders import hdt3213 orders --from redis://10.0.0.7 --yes

From a queue of Delayline, a message is set aside while it moves: it is due after the year 9100. If
the import was killed, start it again, and it continues with these. Dead letters, limits and
messages with a checkpoint stay. Programs that change messages by id must use this queue first.

You can repeat an interrupted import: messages that this queue has already accepted are duplicates,
and are only removed from the old queue. Repeat it soon: this queue remembers an id for at least an
hour after its message has finished, unless 100,000 more messages finish in that time.

With zset --live, the old producers can keep running: an entry that is added again updates its message,
and an entry that is removed while it is being moved is cancelled. Payloads have at most 16 KiB. The
key KEY:delayline-import holds entries that are being moved; if the import was killed, start it
again.

The exit code is 0 if everything was imported. It is 1 if messages were left in the old queue: they
have no payload, no valid due time or no retries left, are too large, or this queue knows their id
with different content or as dead, cancelled or deleted.
For other exit codes, see `delayline --help`.";
