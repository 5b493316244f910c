//! Which dead letters are meant.

use std::time::SystemTime;

use clap::ValueEnum;
use delayline::{DeathReason, MessageInfo, MessageState, Timestamp};

use crate::failure::Failure;
use crate::time::{duration, instant};

/// What dead letters must have in common.
#[derive(clap::Args)]
pub(super) struct Filter {
    /// Why they died
    #[arg(long, value_enum)]
    reason: Option<Reason>,

    /// Text that their last error contains
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,

    /// They died before this instant, or this long ago: 30d
    #[arg(long, value_name = "INSTANT|AGE")]
    dead_before: Option<String>,

    /// They died after this instant, or since this long: 1h
    #[arg(long, value_name = "INSTANT|AGE")]
    dead_after: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Reason {
    /// A handler failed too often
    MaxFailures,
    /// Its lease ran out too often
    MaxCrashes,
    /// A handler rejected it
    Rejected,
    /// It was not delivered before it expired
    Expired,
    /// Its record is damaged
    Unreadable,
}

/// A filter with its instants.
pub(super) struct Sieve {
    reason: Option<DeathReason>,
    error: Option<String>,
    before: Option<Timestamp>,
    after: Option<Timestamp>,
}

impl Filter {
    pub(super) fn is_empty(&self) -> bool {
        self.reason.is_none()
            && self.error.is_none()
            && self.dead_before.is_none()
            && self.dead_after.is_none()
    }

    pub(super) fn read(&self) -> Result<Sieve, Failure> {
        let moment = |text: &Option<String>| text.as_deref().map(instant_or_age).transpose();
        Ok(Sieve {
            reason: self.reason.map(Into::into),
            error: self.error.clone(),
            before: moment(&self.dead_before)?,
            after: moment(&self.dead_after)?,
        })
    }
}

impl Sieve {
    pub(super) fn passes(&self, info: &MessageInfo) -> bool {
        let MessageState::Dead { reason, since } = info.state else { return false };
        let has =
            |text: &String| info.last_error.as_ref().is_some_and(|error| error.contains(text));
        self.reason.is_none_or(|wanted| wanted == reason)
            && self.error.as_ref().is_none_or(has)
            && self.before.is_none_or(|before| since < before)
            && self.after.is_none_or(|after| since > after)
    }
}

/// An age counts back from this machine's clock.
fn instant_or_age(text: &str) -> Result<Timestamp, Failure> {
    let moment = match (duration(text), instant(text)) {
        (Ok(age), _) => SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH),
        (Err(_), Ok(instant)) => instant,
        (Err(age), Err(instant)) => return Err(Failure::usage(format!("{age}; {instant}"))),
    };
    Timestamp::try_from(moment).map_err(|error| Failure::usage(error.to_string()))
}

impl From<Reason> for DeathReason {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::MaxFailures => Self::MaxFailures,
            Reason::MaxCrashes => Self::MaxCrashes,
            Reason::Rejected => Self::Rejected,
            Reason::Expired => Self::Expired,
            Reason::Unreadable => Self::Unreadable,
        }
    }
}
