//! `delayline schedule`.

use std::path::PathBuf;

use clap::{ArgGroup, Subcommand, ValueEnum};
use delayline::schedules::DEFAULT_QUEUE;

/// Send recurring messages, by cron line or interval
///
/// A schedule is a message in a separate queue. For each instant, a scheduler (`schedule run`, or a
/// program that uses the library) sends exactly one message to the schedule's target queue.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Schedule {
    /// Queue that holds only schedules
    #[arg(long, global = true, value_name = "NAME", default_value = DEFAULT_QUEUE)]
    pub(crate) schedules: String,

    #[command(subcommand)]
    pub(crate) verb: ScheduleVerb,
}

#[derive(Subcommand)]
pub(crate) enum ScheduleVerb {
    Put(SchedulePut),
    Apply(ScheduleApply),
    List(ScheduleList),
    Next(ScheduleNext),
    Remove(ScheduleNamed),
    /// Pause a schedule until `schedule resume`
    Pause(ScheduleNamed),
    /// Resume a paused schedule with its next instant
    Resume(ScheduleNamed),
    /// Send the message of a schedule now, in addition to its instants
    RunNow(ScheduleNamed),
    Run(ScheduleRun),
}

/// The instants of a schedule.
#[derive(clap::Args)]
pub(crate) struct When {
    /// Cron line: minute, hour, day of the month, month, day of the week, and the second in front
    /// of them if needed; or @daily and so on
    #[arg(long, value_name = "LINE")]
    pub(crate) cron: Option<String>,

    /// IANA time zone of the line [default: UTC]
    #[arg(long, value_name = "ZONE", requires = "cron")]
    pub(crate) zone: Option<String>,

    /// Fixed interval of 1 s to 366 days, counted from 1970 in UTC: 90s, 30m, 1h30m
    #[arg(long, value_name = "DURATION")]
    pub(crate) every: Option<String>,
}

/// Create a schedule, or change it
///
/// Putting the same schedule again changes nothing, not even its next instant. The target queue is
/// that of --queue.
#[derive(clap::Args)]
#[command(after_help = PUT_HELP)]
#[command(group(ArgGroup::new("when").required(true).args(["cron", "every"])))]
pub(crate) struct SchedulePut {
    /// Name of the schedule: 1 to 100 bytes, without @
    pub(crate) name: String,

    #[command(flatten)]
    pub(crate) when: When,

    /// Payload of the messages, up to 15 KiB of JSON [default: null]
    #[arg(long, value_name = "JSON")]
    pub(crate) payload: Option<String>,

    /// Kind of the payload, for workers that handle several kinds
    #[arg(long, value_name = "KIND")]
    pub(crate) kind: Option<String>,

    /// Group of the messages, such as a tenant: up to 128 bytes
    #[arg(long, value_name = "NAME")]
    pub(crate) group: Option<String>,

    /// What to do while the message of an earlier instant is not finished
    #[arg(long, value_enum)]
    pub(crate) overlap: Option<Overlap>,

    /// How long before its instant a message is created, up to 1h [default: 1m]
    #[arg(long, value_name = "DURATION")]
    pub(crate) lead: Option<String>,

    /// Maximum age of the latest missed instant to make up for it, up to 31d [default: 1d]
    #[arg(long, value_name = "DURATION")]
    pub(crate) grace: Option<String>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Overlap {
    /// Send the next message anyway
    Allow,
    /// Skip that instant
    Skip,
}

/// Replace all schedules of an owner by those in a file
///
/// Creates and changes the schedules in the file, and removes the owner's other schedules. Their
/// names are OWNER/NAME.
#[derive(clap::Args)]
#[command(after_help = APPLY_HELP)]
pub(crate) struct ScheduleApply {
    /// File of JSON; - is stdin
    #[arg(value_name = "PATH")]
    pub(crate) file: PathBuf,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// List all schedules with their next instants
#[derive(clap::Args)]
pub(crate) struct ScheduleList {
    /// Print JSON, one line per schedule, with its next ten instants
    #[arg(long)]
    pub(crate) json: bool,
}

/// Print the next instants of a schedule, or of any cron line or interval
///
/// They are printed in the time zone of the line.
#[derive(clap::Args)]
#[command(after_help = NEXT_HELP)]
#[command(group(ArgGroup::new("which").required(true).args(["name", "cron", "every"])))]
pub(crate) struct ScheduleNext {
    /// Name of the schedule
    pub(crate) name: Option<String>,

    #[command(flatten)]
    pub(crate) when: When,

    /// Instant before the first one: 2026-12-01T09:00:00Z, tomorrow 09:00 in the time zone of this
    /// machine (or TZ), or a delay from now such as 30m [default: now]
    #[arg(long, value_name = "INSTANT")]
    pub(crate) after: Option<String>,

    /// Maximum number of instants: 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 10,
        value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub(crate) count: u16,

    /// Print JSON, in UTC
    #[arg(long)]
    pub(crate) json: bool,
}

/// Remove a schedule, and cancel the messages it has created ahead of time
#[derive(clap::Args)]
pub(crate) struct ScheduleNamed {
    /// Name of the schedule
    pub(crate) name: String,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Run a scheduler until Ctrl-C or SIGTERM
///
/// Any number of schedulers can run: each message is sent once. After a signal, sends under way get
/// 20 s; a second signal ends them at once.
#[derive(clap::Args)]
pub(crate) struct ScheduleRun {
    /// Print the count as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const HELP: &str = "\
The exit code is 1 if no schedule has this name, or if the file is malformed. For other exit codes,
see `delayline --help`.";

const PUT_HELP: &str = r#"Examples:
  delayline schedule put daily-report --queue reports --cron '30 8 * * mon-fri' \
    --zone Europe/Berlin --payload '{"report":"sales"}'
  delayline schedule put sync --queue sync --every 60s --overlap skip"#;

const APPLY_HELP: &str = r#"The file is a JSON object:
  {"owner": "shop", "schedules": {
    "daily-report": {"cron": "30 8 * * mon-fri", "zone": "Europe/Berlin", "queue": "reports",
                     "payload": {"report": "sales"}},
    "sync": {"every": "60s", "queue": "sync", "overlap": "skip"}}}
A schedule has these fields:
  queue                  required: the target queue
  cron, zone or every    required: its instants
  payload                any JSON [default: null]
  kind, group, overlap   as in `delayline schedule put`
  lead, grace            durations: "5m"
If one schedule is malformed, nothing is changed."#;

const NEXT_HELP: &str = "\
Examples:
  # Without a server:
  delayline schedule next --cron '30 2 * * *' --zone Europe/Berlin --after 2026-10-24T00:00:00Z
  delayline schedule next shop/daily-report";
