//! A window of due times: its bounds as typed, and as shown.

use std::time::SystemTime;

use delayline::codec::Raw;
use delayline::{Bytes, Queue, Timestamp};
use delayline_json::Zone;
use serde_json::{Value, json};

use crate::args;
use crate::failure::Failure;
use crate::reading::typed;

/// A window that has not ended.
pub(super) struct Window {
    pub(super) from: Timestamp,
    pub(super) until: Option<Timestamp>,
}

/// The bounds on the command line.
pub(super) struct Bounds {
    from: Option<Timestamp>,
    until: Option<Timestamp>,
}

impl Bounds {
    /// Reads the flags; `None` if there are none.
    pub(super) fn read(flags: &args::Window) -> Result<Option<Self>, Failure> {
        if !flags.is_given() {
            return Ok(None);
        }
        let bound = |flag: &str, text: &Option<String>| {
            let read = |text: &String| {
                let instant: SystemTime = typed(text).map_err(Failure::usage)?;
                Ok(Timestamp::try_from(instant).map_err(delayline::Error::from)?)
            };
            let instant = text.as_ref().map(read).transpose();
            instant.map_err(|failure: Failure| failure.about(flag))
        };
        let (from, until) = (bound("--from", &flags.from)?, bound("--until", &flags.until)?);
        if let (Some(from), Some(until)) = (from, until)
            && until <= from
        {
            let (from, until) = (shown(from), shown(until));
            let sentence = format!("the window ends at {until}, but begins at {from}");
            return Err(Failure::usage(sentence).hint(
                "a time without a day is the next one; for another, write \"today 14:00\" or \
                 \"tomorrow 14:00\"",
            ));
        }
        Ok(Some(Self { from, until }))
    }

    /// The window by the clock of the queue's server.
    pub(super) async fn window(self, queue: &Queue<Bytes, Raw>) -> Result<Window, Failure> {
        let now = queue.server_time().await?;
        let Self { from, until } = self;
        if let Some(until) = until.filter(|until| *until <= now) {
            let (until, now) = (shown(until), shown(now));
            let sentence = format!("the window ended at {until}, and the server has {now}");
            return Err(Failure::usage(sentence).hint(
                "messages that were due by then are ready: `delayline list --state ready` lists \
                 them",
            ));
        }
        Ok(Window { from: from.unwrap_or(now), until })
    }
}

impl Window {
    /// The flags for the same window, whenever they are given.
    pub(super) fn flags(&self) -> String {
        let until = self.until.map(|until| format!(" --until {until}"));
        format!("--from {}{}", self.from, until.unwrap_or_default())
    }

    /// Its bounds in UTC, and the zone in which they were read.
    pub(super) fn json(&self) -> Value {
        json!({
            "from": self.from.to_string(),
            "until": self.until.map(|until| until.to_string()),
            "zone": Zone::local().name(),
        })
    }
}

/// An instant in the time zone of this machine and in UTC.
pub(super) fn shown(instant: Timestamp) -> String {
    let zone = Zone::local();
    if zone.is_utc() { instant.to_string() } else { format!("{} ({instant})", zone.shown(instant)) }
}
