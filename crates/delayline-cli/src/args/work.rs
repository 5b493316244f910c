//! `delayline work`.

use std::ffi::OsString;

use clap::builder::RangedU64ValueParser;
use delayline::limits::MAX_BATCH;

use super::variables::{POST_SECRET, is_given};
use crate::failure::Failure;

/// Handle messages: print each one, run a command for it, or post it to a URL
///
/// Prints each due message as a JSON line on stdout, runs a command for it, or sends it as an HTTP
/// POST. Runs until Ctrl-C or SIGTERM. Acks the message once the line is written, the command
/// succeeds, or the answer has a 2xx status.
#[derive(clap::Args)]
#[command(after_help = WORK_HELP)]
pub(crate) struct Work {
    /// Messages to handle at once: 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = concurrency())]
    pub(crate) concurrency: usize,

    /// Lease: how long a message stays with this process without a heartbeat, up to 1d
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    pub(crate) lease: String,

    /// Time limit per command or request, after which the attempt fails. A command and its children
    /// get SIGTERM, and a few seconds later SIGKILL. Default: 30s for a request, no limit for a
    /// command
    #[arg(long, value_name = "DURATION", requires = "action")]
    pub(crate) timeout: Option<String>,

    /// Grace period for commands and requests after Ctrl-C or SIGTERM; a second signal ends it at
    /// once
    #[arg(long, value_name = "DURATION", default_value = "20s")]
    pub(crate) grace: String,

    /// Exit when no message is scheduled, ready or leased
    #[arg(long)]
    pub(crate) until_empty: bool,

    /// Pass the server's URL, including its password, to commands as DELAYLINE_URL, and the
    /// sentinels' password as DELAYLINE_SENTINEL_PASSWORD
    #[arg(long, requires = "exec")]
    pub(crate) pass_url: bool,

    /// Command and arguments, up to the end of the line; it gets the payload on stdin, and
    /// DELAYLINE_ID and more as variables
    #[arg(long, num_args = 1.., allow_hyphen_values = true, value_name = "COMMAND", group = "action")]
    pub(crate) exec: Vec<OsString>,

    #[command(flatten)]
    pub(crate) post: Post,
}

/// Requests to a URL.
#[derive(clap::Args)]
#[command(next_help_heading = "Requests")]
pub(crate) struct Post {
    /// Send each message as an HTTP POST to this URL, http:// or https://
    #[arg(
        id = "post",
        long = "post",
        value_name = "URL",
        group = "action",
        conflicts_with = "exec"
    )]
    pub(crate) url: Option<String>,

    /// Key that signs requests: whsec_ and base64, or any text of at least 16 bytes; safer in the
    /// environment variable
    #[arg(
        id = "post_secret",
        long = "post-secret",
        value_name = "SECRET",
        env = POST_SECRET,
        hide_env_values = true
    )]
    pub(crate) secret: Option<String>,

    /// Retry a message after a 4xx answer, instead of moving it to the dead letters
    #[arg(long, requires = "post")]
    pub(crate) retry_4xx: bool,

    /// Maximum number of snoozes requested by answers (429 or 503 with Retry-After); after that,
    /// such an answer counts as a failure. Releases, for example when `work` ends, count as snoozes
    #[arg(long, value_name = "N", default_value_t = 100, requires = "post")]
    pub(crate) max_snoozes: u64,
}

impl Post {
    /// Refuses a secret that signs nothing.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.url.is_none() && is_given(self.secret.as_deref(), POST_SECRET) {
            return Err(Failure::usage("--post-secret needs --post"));
        }
        Ok(())
    }
}

/// How many messages a worker may handle at once.
pub(super) fn concurrency() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=MAX_BATCH as u64)
}

const WORK_HELP: &str = "\
Examples:
  delayline work --concurrency 4 --exec ./close-order
  delayline work --until-empty > handled.jsonl
  delayline work --post https://hooks.example/orders

A line on stdout is a JSON object with id, payload (payload_base64 if it is not UTF-8), group (null
if the message has none), due, lateness_ms, epoch, failures, crashes, headers and, if the message
has waited for others, members. If stdout is closed, unprinted messages are released.

A command gets the payload on stdin, and the variables DELAYLINE_QUEUE, DELAYLINE_ID, DELAYLINE_DUE,
DELAYLINE_LATENESS_MS, DELAYLINE_EPOCH, DELAYLINE_ATTEMPT, DELAYLINE_FAILURES, DELAYLINE_CRASHES,
DELAYLINE_HEADERS (JSON) and, if the message has a group, DELAYLINE_GROUP. An id that is not text,
or an id or a group with a NUL, is in DELAYLINE_ID_BASE64 or DELAYLINE_GROUP_BASE64 instead. Exit
code 0 acks the message; if it was sent with --keep-result, the command's stdout is its result. Any
other code retries the message later, with the end of the command's stderr as the reason; leftover
child processes are then terminated. After exit code 0, they continue to run, and while they hold
its stdout, stderr or file descriptor 3 open, the message is acked half a second later. Their output
is passed on, for up to 256 ended commands at a time; file descriptor 3 is closed. Commands do not
inherit DELAYLINE_POST_SECRET, DELAYLINE_CLAIM_SECRET, DELAYLINE_FROM_URL or DELAYLINE_PROMETHEUS.
They inherit DELAYLINE_URL and DELAYLINE_SENTINEL_PASSWORD only with --pass-url. When `work` ends, a
command that still runs after the grace period is terminated with its child processes, and its
message is released, which is not counted. On Linux, SIGHUP counts as SIGTERM, unless it is ignored,
as under nohup. A message is delivered at least once: a command can run twice for it, the second
time with a higher DELAYLINE_EPOCH.

A command saves its progress and a checkpoint of up to 4 KiB as lines of JSON on file descriptor 3,
whose number is in DELAYLINE_SAVE_FD:
  echo '{\"checkpoint\": \"12\", \"progress\": 0.4, \"progress_text\": \"page 12 of 30\"}' >&3
All fields are optional. The next attempt gets the checkpoint in DELAYLINE_CHECKPOINT, or in
DELAYLINE_CHECKPOINT_BASE64 if it is not text.

The body of a request is the payload. Its headers are those of Standard Webhooks (webhook-id,
webhook-timestamp, and with a secret webhook-signature), content-type, traceparent and tracestate as
in the message's headers, and delayline-queue, -due, -lateness-ms, -epoch, -attempt, -failures,
-crashes, -headers (JSON) and -group (percent-encoded UTF-8, if the message has one). Instead of
-headers of more than 7 KiB, -headers-omitted has their number of bytes. A 2xx answer acks the
message; if it was sent with --keep-result, the body of the answer is its result. 429 and 503 with
Retry-After snooze it, and hold the whole queue that long, from 1 s to 1 day. Other 4xx answers
reject it, except 408, 425 and 429. After any other answer, the message is retried, with the status
and the beginning of the answer as the reason. Redirects are not followed, and proxies named in the
environment are not used. A message can be posted twice, the second time with a higher
delayline-epoch.";
