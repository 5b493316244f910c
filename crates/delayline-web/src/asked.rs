//! Which dead letters a visitor asks for.

use std::fmt;

use delayline::Timestamp;
use delayline::admin::folded_error;
use delayline::backend::is_printable;
use delayline::limits;
use delayline::message::{DeathReason, Group};
use delayline_admin::{Group as ErrorGroup, LetterFilter};
use delayline_json::{Zone, duration};
use serde_json::{Map, Value};

use crate::failure::Failure;
use crate::ids::encoded;
use crate::params::Params;
use crate::when::moment;

/// The filters as they were written, each of them checked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    reasons: Vec<DeathReason>,
    texts: Texts,
}

/// The filters besides the reasons.
#[derive(Clone, Debug, Default)]
struct Texts {
    error: Option<String>,
    /// An error, of which ids and numbers do not count; empty for letters without an error.
    error_like: Option<String>,
    group: Option<String>,
    died_after: Option<String>,
    died_before: Option<String>,
}

impl Texts {
    fn fields(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let fields = [
            ("error", &self.error),
            ("error_like", &self.error_like),
            ("group", &self.group),
            ("died_after", &self.died_after),
            ("died_before", &self.died_before),
        ];
        fields.into_iter().filter_map(|(name, text)| Some((name, text.as_deref()?)))
    }
}

impl Asked {
    /// The names of the members of an object.
    pub(crate) const NAMES: [&str; 6] =
        ["reason", "error", "error_like", "group", "died_after", "died_before"];

    /// The letters of a group among these letters: all other filters stay.
    pub(crate) fn of_group(&self, group: &ErrorGroup) -> Self {
        let texts = Texts { error_like: Some(group.error.clone()), ..self.texts.clone() };
        Self { reasons: vec![group.reason], texts }
    }

    /// From the query of a page or from a form. Times in words become instants, because they would
    /// mean other times later.
    pub(crate) fn in_params(params: &Params, now: Timestamp) -> Result<Self, Failure> {
        let reasons = params.texts("reason").filter(|it| !it.is_empty());
        let text = |name: &str| params.text(name).map(str::to_owned);
        // These are exact: a space more would be another error, or another group.
        let exact = |name| params.texts(name).next().map(str::to_owned);
        let died = |name| params.text(name).map(|text| died(now, text)).transpose();
        let wanted = Texts {
            error: text("error"),
            error_like: exact("error_like"),
            group: exact("group").filter(|group| !group.is_empty()),
            died_after: died("died_after")?,
            died_before: died("died_before")?,
        };
        let typed = [&wanted.error, &wanted.group];
        if !typed.into_iter().flatten().flat_map(|text| text.chars()).all(is_printable) {
            // A field of a form cannot hold it, and would choose other letters.
            return Err(Failure::Wrong("a filter has printable characters only".to_owned()));
        }
        Self::new(reasons, wanted)
    }

    /// From an object; `reason` is a string or an array of strings.
    pub(crate) fn in_object(members: &Map<String, Value>) -> Result<Self, Failure> {
        let strings = || Failure::Wrong("the filters must be strings".to_owned());
        let text = |name: &str| match members.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(strings()),
        };
        let reasons = match members.get("reason") {
            None => Vec::new(),
            // No reason would be a filter that matches nothing, or everything.
            Some(Value::Array(items)) if items.is_empty() => {
                return Err(Failure::Wrong("`reason` has no items".to_owned()));
            }
            Some(Value::Array(items)) => items.iter().collect(),
            Some(one) => vec![one],
        };
        let reasons: Option<Vec<&str>> = reasons.into_iter().map(Value::as_str).collect();
        let wanted = Texts {
            error: text("error")?,
            error_like: text("error_like")?,
            group: text("group")?,
            died_after: text("died_after")?,
            died_before: text("died_before")?,
        };
        Self::new(reasons.ok_or_else(strings)?.into_iter(), wanted)
    }

    fn new<'a>(reasons: impl Iterator<Item = &'a str>, wanted: Texts) -> Result<Self, Failure> {
        let mut known = Vec::new();
        for name in reasons {
            let reason = DeathReason::ALL.iter().copied().find(|reason| reason.name() == name);
            let reason = reason.ok_or_else(|| {
                let names: Vec<_> = DeathReason::ALL.iter().map(|it| it.name()).collect();
                Failure::Wrong(format!("`reason` is one of {}", names.join(", ")))
            })?;
            if !known.contains(&reason) {
                known.push(reason);
            }
        }
        let most = limits::MAX_ERROR_BYTES;
        if wanted.fields().any(|(_, text)| text.len() > most) {
            return Err(Failure::Wrong(format!("a filter has at most {most} bytes")));
        }
        // Pages show it and forms return it, so it is one line.
        let error_like = wanted.error_like.map(|error| folded_error(&error));
        let asked = Self { reasons: known, texts: Texts { error_like, ..wanted } };
        asked.filter()?;
        Ok(asked)
    }

    pub(crate) fn filter(&self) -> Result<LetterFilter, Failure> {
        let Texts { error, error_like, group, died_after, died_before } = &self.texts;
        let (before, after) = (died_before.as_deref(), died_after.as_deref());
        let filter = LetterFilter::new(self.reasons.clone(), error.clone(), before, after);
        let group = group.as_deref().map(Group::new).transpose();
        let group = group.map_err(|violation| Failure::Wrong(violation.to_string()))?;
        Ok(filter.map_err(Failure::Wrong)?.error_like(error_like.clone()).group(group))
    }

    /// Whether no filter was given.
    pub(crate) fn is_everything(&self) -> bool {
        self.fields().is_empty()
    }

    pub(crate) fn has_reason(&self, reason: DeathReason) -> bool {
        self.reasons.contains(&reason)
    }

    /// The error of a group, whose ids and numbers are folded; empty for letters without one.
    pub(crate) fn error_like(&self) -> Option<&str> {
        self.texts.error_like.as_deref()
    }

    /// The names and values of the given parameters.
    pub(crate) fn fields(&self) -> Vec<(&'static str, &str)> {
        let reasons = self.reasons.iter().map(|reason| ("reason", reason.name()));
        reasons.chain(self.texts.fields()).collect()
    }

    /// The value of a field, or nothing.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.fields().into_iter().find(|(known, _)| *known == name).map_or("", |(_, text)| text)
    }

    /// The same as the rest of a query.
    pub(crate) fn query(&self) -> String {
        let fields = self.fields().into_iter();
        fields.map(|(name, text)| format!("&{name}={}", encoded(text.as_bytes()))).collect()
    }
}

/// An age as it is, and a time in the visitor's zone as an instant. A time of day is one of today.
fn died(now: Timestamp, text: &str) -> Result<String, Failure> {
    if duration(text).is_ok() {
        return Ok(text.to_owned());
    }
    if let Some(time) = text.to_ascii_lowercase().strip_prefix("yesterday") {
        // Days have 23 to 25 hours. 24 hours before noon, it was yesterday in any case.
        let noon = moment(now, "today noon")?.as_ms();
        let yesterday = Timestamp::from_ms(noon.saturating_sub(DAY_MS))?;
        return Ok(moment(yesterday, &format!("today{time}"))?.to_string());
    }
    let today = format!("today {text}");
    // A time of day that clocks skip or have twice is refused. Alone, it would mean tomorrow.
    // UTC has each time of day once.
    let is_time_of_day = delayline_json::moment(&today, now.into(), &Zone::UTC).is_ok();
    Ok(moment(now, if is_time_of_day { &today } else { text })?.to_string())
}

const DAY_MS: u64 = 86_400_000;

/// `reason=rejected, error=timed out`, in a line.
impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = self.fields();
        let fields: Vec<_> = fields.iter().map(|(name, text)| format!("{name}={text}")).collect();
        f.write_str(&delayline_json::harmless_line(&fields.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test code")]

    use axum::http::header::{COOKIE, HeaderMap};

    use super::*;
    use crate::when::in_zone_of;

    #[tokio::test]
    async fn a_time_of_day_that_clocks_skip_or_repeat_is_refused() {
        let cookie = "delayline_zone=Europe%2FBerlin".parse().unwrap();
        let headers = HeaderMap::from_iter([(COOKIE, cookie)]);
        for (now, why) in [("2026-03-29T10:00:00Z", "skips it"), ("2026-10-25T10:00:00Z", "twice")]
        {
            let now = Timestamp::try_from(delayline_json::instant(now).unwrap()).unwrap();
            let died = in_zone_of(&headers, async { died(now, "02:30") }).await;
            let told = died.unwrap_err().detail();
            assert!(told.contains(why), "{told}");
        }
    }

    #[tokio::test]
    async fn yesterday_is_the_day_before_when_clocks_change_too() {
        let cookie = "delayline_zone=Europe%2FBerlin".parse().unwrap();
        let headers = HeaderMap::from_iter([(COOKIE, cookie)]);
        let at = |text: &str| Timestamp::try_from(delayline_json::instant(text).unwrap()).unwrap();
        for (now, time, expected) in [
            // Half past midnight, after a day of 23 hours.
            ("2026-03-29T22:30:00Z", "yesterday 09:00", "2026-03-29T07:00:00Z"),
            // Half an hour before midnight, on a day of 25 hours.
            ("2026-10-25T22:30:00Z", "Yesterday", "2026-10-23T22:00:00Z"),
            ("2026-03-29T22:30:00Z", "14:00", "2026-03-30T12:00:00Z"),
        ] {
            let died = in_zone_of(&headers, async { died(at(now), time).ok() }).await;
            assert_eq!(died, Some(at(expected).to_string()), "{time} at {now}");
        }
    }
}
