//! Which dead letters are meant.

use std::time::Duration;

use delayline::Timestamp;
use delayline::admin::Position;
use delayline::message::{DeathReason, MessageInfo, MessageState};

use crate::{duration, instant};

/// Conditions that the dead letters must all meet.
#[derive(Clone, Debug, Default)]
pub struct LetterFilter {
    reasons: Vec<DeathReason>,
    error: Option<String>,
    before: Option<When>,
    after: Option<When>,
}

/// A point in time, or how long ago it was.
#[derive(Clone, Copy, Debug)]
enum When {
    At(Timestamp),
    Ago(Duration),
}

/// A filter at one moment.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    filter: LetterFilter,
    /// Letters that died at this instant or later are not wanted.
    end: Option<Timestamp>,
    /// Letters that died before this instant are not wanted.
    begin: Option<Timestamp>,
}

impl LetterFilter {
    /// Letters that died for one of these reasons, or for any if there is none; whose last error
    /// contains a text; and that died before, and at or after, an instant or an age such as `2h`.
    ///
    /// # Errors
    ///
    /// Why a time is invalid, in words.
    pub fn new(
        reasons: Vec<DeathReason>,
        error: Option<String>,
        before: Option<&str>,
        after: Option<&str>,
    ) -> Result<Self, String> {
        let before = before.map(when).transpose()?;
        Ok(Self { reasons, error, before, after: after.map(when).transpose()? })
    }

    /// Turns ages into instants.
    #[must_use]
    pub fn at(self, now: Timestamp) -> Wanted {
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
    /// Whether every letter passes.
    #[must_use]
    pub const fn is_everything(&self) -> bool {
        let LetterFilter { reasons, error, .. } = &self.filter;
        reasons.is_empty() && error.is_none() && self.end.is_none() && self.begin.is_none()
    }

    /// Whether this is a letter that is meant.
    #[must_use]
    pub fn passes(&self, letter: &MessageInfo) -> bool {
        let MessageState::Dead { reason, since } = letter.state else { return false };
        let LetterFilter { reasons, error, .. } = &self.filter;
        let said = || letter.last_error.as_deref().unwrap_or_default();
        (reasons.is_empty() || reasons.contains(&reason))
            && error.as_ref().is_none_or(|text| said().contains(text))
            && self.end.is_none_or(|end| since < end)
            && self.begin.is_none_or(|begin| since >= begin)
    }

    /// The place before the first letter that may pass.
    #[must_use]
    pub fn first(&self) -> Option<Position> {
        let instant = self.begin?;
        Some(Position { index: Position::DEAD, instant, sequence: 0 })
    }

    /// Whether no letter that died at this instant or later passes.
    #[must_use]
    pub fn is_over(&self, since: Timestamp) -> bool {
        self.end.is_some_and(|end| since >= end)
    }
}

fn when(text: &str) -> Result<When, String> {
    if let Ok(age) = duration(text) {
        return Ok(When::Ago(age));
    }
    let at = instant(text).map_err(|why| format!("{why}, nor is it an age such as 2h"))?;
    let at = Timestamp::try_from(at).map_err(|violation| violation.to_string())?;
    Ok(When::At(at))
}
