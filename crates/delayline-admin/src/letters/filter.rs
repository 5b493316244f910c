//! Conditions for dead letters, with ages or instants.

use std::time::{Duration, SystemTime};

use delayline::Timestamp;
use delayline::admin::DeadLetterFilter;
use delayline::message::{DeathReason, Group};
use delayline_json::{duration, instant};

/// Conditions, all of which a dead letter must meet.
#[derive(Clone, Debug, Default)]
pub struct LetterFilter {
    reasons: Vec<DeathReason>,
    error: Option<String>,
    like: Option<String>,
    group: Option<Group>,
    before: Option<When>,
    after: Option<When>,
}

/// A point in time, or how long ago it was.
#[derive(Clone, Copy, Debug)]
enum When {
    At(SystemTime),
    Ago(Duration),
}

impl LetterFilter {
    /// Selects letters that died for one of `reasons`, or for any reason if there are none; whose
    /// last error contains `error`; and that died before `before`, and at `after` or later. Both
    /// times are an instant or an age, such as `2h`.
    ///
    /// # Errors
    ///
    /// If a time is invalid: the reason, after `died_before: ` or `died_after: `.
    pub fn new(
        reasons: Vec<DeathReason>,
        error: Option<String>,
        before: Option<&str>,
        after: Option<&str>,
    ) -> Result<Self, String> {
        let read = |name: &str, text: Option<&str>| {
            text.map(when).transpose().map_err(|why| format!("{name}: {why}"))
        };
        let (before, after) = (read("died_before", before)?, read("died_after", after)?);
        Ok(Self { reasons, error, like: None, group: None, before, after })
    }

    /// Selects letters whose last error is like this one, apart from ids and numbers. The empty
    /// text selects letters without an error, and `None` changes nothing.
    #[must_use]
    pub fn error_like(self, error: Option<String>) -> Self {
        Self { like: error.or(self.like), ..self }
    }

    /// Selects letters of this group. `None` changes nothing.
    #[must_use]
    pub fn group(self, group: Option<Group>) -> Self {
        Self { group: group.or(self.group), ..self }
    }

    /// Converts ages to instants.
    #[must_use]
    pub fn at(self, now: Timestamp) -> DeadLetterFilter {
        let now = SystemTime::from(now);
        let instant = |when: When| match when {
            When::At(instant) => instant,
            When::Ago(age) => now.checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH),
        };
        let mut filter = DeadLetterFilter::new();
        for reason in self.reasons {
            filter = filter.reason(reason);
        }
        if let Some(text) = self.error {
            filter = filter.error_contains(text);
        }
        if let Some(error) = self.like {
            filter = filter.error_like(error);
        }
        if let Some(group) = self.group {
            filter = filter.group(group);
        }
        if let Some(when) = self.before {
            filter = filter.died_before(instant(when));
        }
        if let Some(when) = self.after {
            filter = filter.died_since(instant(when));
        }
        filter
    }
}

fn when(text: &str) -> Result<When, String> {
    let why = match duration(text) {
        Ok(age) => return Ok(When::Ago(age)),
        Err(why) => why,
    };
    if text.starts_with('-') {
        return Err(why);
    }
    let at = instant(text).map_err(|why| format!("{why}, nor is it an age such as 2h"))?;
    Timestamp::try_from(at).map_err(|violation| violation.to_string())?;
    Ok(When::At(at))
}
