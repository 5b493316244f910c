//! `delayline send`.

use std::path::PathBuf;

use clap::ValueEnum;
use clap::builder::RangedI64ValueParser;
use delayline::Durability;
use delayline::limits::MAX_ATTEMPT_LIMIT;

/// Send one message, or one per line of a file
#[derive(clap::Args)]
#[command(after_help = SEND_HELP)]
pub(crate) struct Send {
    /// Message id, needed to cancel; sending the same message again has no effect [default: a new
    /// one, which is printed]
    #[arg(long)]
    pub(crate) id: Option<String>,

    /// Payload, sent as is
    #[arg(long, required_unless_present = "file", value_name = "TEXT")]
    pub(crate) payload: Option<String>,

    /// Delay before it is due: 90s, 30m, 1h30m, 2 days
    #[arg(long, conflicts_with = "at", value_name = "DURATION")]
    pub(crate) delay: Option<String>,

    /// When it is due: 14:00, tomorrow 09:00, monday 09:00 in the time zone of this machine (or
    /// TZ), 2026-12-01T09:00:00Z, 2026-12-01T09:00:00+01:00[Europe/Berlin], or unix time: 10 digits
    /// in seconds, 13 in milliseconds
    #[arg(long, value_name = "INSTANT")]
    pub(crate) at: Option<String>,

    /// Group of the message, such as a tenant: up to 128 bytes. Groups with due messages take turns
    #[arg(long, value_name = "NAME")]
    pub(crate) group: Option<String>,

    /// Priority among due messages; normal for a message with a group
    #[arg(long, value_enum)]
    pub(crate) priority: Option<Priority>,

    /// Kind of the payload, for queues with several types
    #[arg(long)]
    pub(crate) kind: Option<String>,

    /// Header; repeatable
    #[arg(long = "header", value_name = "NAME=VALUE")]
    pub(crate) headers: Vec<String>,

    /// Failures after which it becomes a dead letter: 1 to 65535 [default: 20]
    #[arg(long, value_name = "N", value_parser = attempts())]
    pub(crate) max_failures: Option<u32>,

    /// Expired leases after which it becomes a dead letter: 1 to 65535 [default: 5]
    #[arg(long, value_name = "N", value_parser = attempts())]
    pub(crate) max_crashes: Option<u32>,

    /// Begin no delivery after this time, retries included; it becomes a dead letter instead
    #[arg(long, value_name = "DURATION")]
    pub(crate) expires_in: Option<String>,

    /// Keep the handler's result for this long, up to 7d; `delayline wait` prints it
    #[arg(long, value_name = "DURATION")]
    pub(crate) keep_result: Option<String>,

    /// Deliver when the message with this id has ended; repeatable
    #[arg(long, value_name = "ID")]
    pub(crate) after: Vec<String>,

    /// Queue of the messages that it waits for, if it is another one
    #[arg(long, value_name = "QUEUE", requires = "after")]
    pub(crate) after_in: Option<String>,

    /// With --after: effect of a message that is dead, cancelled or purged [default: wait]
    #[arg(long, value_parser = ["wait", "deliver", "cancel"], requires = "after")]
    pub(crate) on_failure: Option<String>,

    /// With --after: deliver after this time in any case [default: 1d]
    #[arg(long, value_name = "DURATION", requires = "after")]
    pub(crate) wait_at_most: Option<String>,

    /// Wake the message with this id, which waits for this one, when this one has ended
    #[arg(long, value_name = "ID")]
    pub(crate) wakes: Option<String>,

    /// Queue of the message to wake, if it is another one
    #[arg(long, value_name = "QUEUE", requires = "wakes")]
    pub(crate) wakes_in: Option<String>,

    /// Send even if a message with this id finished recently
    #[arg(long)]
    pub(crate) reuse_finished_id: bool,

    /// Create at most one message with this id per window, up to 31d; the first one counts
    #[arg(long, value_name = "DURATION", requires = "id")]
    pub(crate) throttle: Option<String>,

    /// Update the message with this id, if it exists; see below
    #[arg(
        long,
        value_name = "KIND",
        value_parser = ["replace", "reschedule", "coalesce", "debounce"],
        requires = "id"
    )]
    pub(crate) update: Option<String>,

    /// With --update debounce: latest due time, counted from the first send
    #[arg(long, value_name = "DURATION", requires = "update")]
    pub(crate) at_most: Option<String>,

    /// What to wait for: only the server (none), also N replicas (replicas=N), or the server's disk
    /// (disk)
    #[arg(long, value_name = "WHERE", default_value_t)]
    pub(crate) durability: Durability,

    /// File of JSON lines, one message per line; - is stdin
    #[arg(
        long,
        value_name = "PATH",
        conflicts_with_all = [
            "id", "payload", "delay", "at", "group", "priority", "kind", "headers", "max_failures",
            "max_crashes", "expires_in", "keep_result", "after", "wakes", "reuse_finished_id",
            "throttle", "update", "at_most"
        ]
    )]
    pub(crate) file: Option<PathBuf>,

    /// Generate ids for lines without one; sending the file again sends those lines again
    #[arg(long, requires = "file")]
    pub(crate) make_ids: bool,

    /// Print JSON on stdout: the outcome, also if the message was not accepted; with --file, the
    /// summary
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Priority {
    /// Highest priority
    Urgent,
    /// Above normal
    High,
    /// The default
    Normal,
    /// Lowest priority
    Low,
}

/// How often a message may fail, or its lease expire.
fn attempts() -> RangedI64ValueParser<u32> {
    RangedI64ValueParser::new().range(1..=MAX_ATTEMPT_LIMIT.into())
}

const SEND_HELP: &str = r#"Examples:
  delayline send --id order-1234 --payload '{"total":9}' --delay 30m
  delayline send --id index-17 --payload 17 --delay 2s --update debounce --at-most 1m
  delayline send --id disk-full-17 --payload 17 --throttle 1h
  delayline send --file orders.jsonl

Kinds of updates:
  replace      replace content and due time
  reschedule   keep the content and when it expires, change the due time
  coalesce     replace the content, keep the due time
  debounce     replace the content, postpone the due time up to --at-most
If a worker holds the message, the update takes effect when the worker has finished. If the message
has finished or does not exist, a new one is created: with --throttle, at most one per window.

A line of the file is a JSON object:
  {"id": "order-1234", "payload": {"total": 9}, "delay": "30m"}
with the fields
  id                       required, unless --make-ids is given
  payload                  a string is sent as its text, any other value as its compact JSON;
                           or payload_base64 for any bytes
  delay                    like the flag
  at                       instead: 2026-12-01T09:00:00Z, also with an offset or a time zone, or
                           seconds or milliseconds since 1970
  group                    the group of the message, such as a tenant
  priority                 "urgent", "high", "normal" or "low"
  kind                     the kind of the payload, as a string
  headers                  {"name": "value"}
  max_failures, max_crashes, expires_in, keep_result, reuse_finished_id, throttle, update, at_most
  after                    a list of ids of messages that it waits for, or of objects like
                           {"queue": "thumbs", "id": "photo-1"}; with on_failure and wait_at_most
  wakes                    the id, or such an object, of the message that waits for this one
  update_token             16 hexadecimal digits: a repeated token changes nothing; without a token,
                           a repeated update counts as a new one
Invalid lines are skipped and reported: ten for each reason, then their number. The others are sent.
If you send the file again, only the missing messages are added: a known id with the same content is
a harmless duplicate, unless its message was cancelled or purged, or is a dead letter: such a line
is reported, since it will not be delivered, and the exit code is 1. Ids are remembered for at least
one hour after their message has finished."#;
