//! `delayline reschedule`.

use std::ffi::OsString;

use clap::ArgGroup;

/// Change the due time of messages
///
/// Works for scheduled and ready messages, not for leased ones or dead letters.
#[derive(clap::Args)]
#[command(after_help = HELP)]
#[command(group(ArgGroup::new("when").required(true).args(["delay", "at"])))]
pub(crate) struct Reschedule {
    /// Message ids
    #[arg(required = true, value_name = "ID")]
    pub(crate) ids: Vec<OsString>,

    /// Delay before they are due: 90s, 30m, 1h30m, 2 days
    #[arg(long, value_name = "DURATION")]
    pub(crate) delay: Option<String>,

    /// When they are due: 14:00, tomorrow 09:00, monday 09:00 in the time zone of this machine (or
    /// TZ), 2026-12-01T09:00:00Z, 2026-12-01T09:00:00+01:00[Europe/Berlin], or unix time: 10 digits
    /// in seconds, 13 in milliseconds
    #[arg(long, value_name = "INSTANT")]
    pub(crate) at: Option<String>,

    /// Print JSON, one line per id
    #[arg(long)]
    pub(crate) json: bool,
}

const HELP: &str = "\
Examples:
  delayline reschedule order-1234 --delay 2h
  delayline reschedule order-1234 --at 2026-12-01T09:00:00Z
  delayline reschedule order-1234 --at 'tomorrow 09:00'
  delayline reschedule order-1234 --delay 0s      # due at once

The exit code is 1 if a message is unknown, with a worker (in flight), or dead (`delayline dead
redrive` revives it); the others are still rescheduled. For other exit codes, see `delayline
--help`.";
