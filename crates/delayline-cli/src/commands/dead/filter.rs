//! Which dead letters are meant.

use std::time::Duration;

use delayline::{DeathReason, MessageInfo, MessageState, Position, Timestamp};
use delayline_json::{duration, instant};

use crate::args;
use crate::failure::Failure;

/// The filters of the command line.
pub(super) struct Filter {
    reasons: Vec<DeathReason>,
    error: Option<String>,
    before: Option<When>,
    after: Option<When>,
}

/// A point in time, or how long ago it was.
#[derive(Clone, Copy)]
enum When {
    At(Timestamp),
    Ago(Duration),
}

/// The filters at one moment.
pub(super) struct Wanted {
    filter: Filter,
    /// Letters that died at this instant or later are not wanted.
    end: Option<Timestamp>,
    /// Letters that died before this instant are not wanted.
    begin: Option<Timestamp>,
}

impl Filter {
    pub(super) fn read(args: &args::Filter) -> Result<Self, Failure> {
        let when = |text: &Option<String>| text.as_deref().map(when).transpose();
        Ok(Self {
            reasons: args.reason.iter().copied().map(Into::into).collect(),
            error: args.error.clone(),
            before: when(&args.died_before)?,
            after: when(&args.died_after)?,
        })
    }

    /// Turns ages into instants.
    pub(super) fn at(self, now: Timestamp) -> Wanted {
        let instant = |when: When| match when {
            When::At(instant) => instant,
            When::Ago(age) => Timestamp::from_ms(
                now.as_ms().saturating_sub(u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
            )
            .unwrap_or(Timestamp::MIN),
        };
        let (end, begin) = (self.before.map(instant), self.after.map(instant));
        Wanted { filter: self, end, begin }
    }
}

impl Wanted {
    pub(super) fn is_everything(&self) -> bool {
        let Filter { reasons, error, .. } = &self.filter;
        reasons.is_empty() && error.is_none() && self.end.is_none() && self.begin.is_none()
    }

    pub(super) fn passes(&self, letter: &MessageInfo) -> bool {
        let MessageState::Dead { reason, since } = letter.state else { return false };
        let Filter { reasons, error, .. } = &self.filter;
        let said = || letter.last_error.as_deref().unwrap_or_default();
        (reasons.is_empty() || reasons.contains(&reason))
            && error.as_ref().is_none_or(|text| said().contains(text))
            && self.end.is_none_or(|end| since < end)
            && self.begin.is_none_or(|begin| since >= begin)
    }

    /// The place before the first letter that may pass.
    pub(super) fn first(&self) -> Option<Position> {
        let instant = self.begin?;
        Some(Position { index: Position::DEAD, instant, sequence: 0 })
    }

    /// Whether no letter that died at this instant or later passes.
    pub(super) fn is_over(&self, since: Timestamp) -> bool {
        self.end.is_some_and(|end| since >= end)
    }
}

fn when(text: &str) -> Result<When, Failure> {
    if let Ok(age) = duration(text) {
        return Ok(When::Ago(age));
    }
    let at = instant(text)
        .map_err(|why| Failure::usage(format!("{why}, nor is it an age such as 2h")))?;
    let at = Timestamp::try_from(at).map_err(|violation| Failure::usage(violation.to_string()))?;
    Ok(When::At(at))
}
