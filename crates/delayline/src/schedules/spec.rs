//! The spec of a schedule.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use delayline_core::{Group, Headers, Millis, QueueName, Violation};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::cron::Cron;
use super::payload::Payload;
use crate::codec::{Encode, Json};
use crate::error::whole_ms;
use crate::{Error, Kind};

/// The messages of a schedule, their queue and their instants, for
/// [`Schedules::put`](super::Schedules::put).
///
/// ```
/// use std::time::Duration;
///
/// use delayline::schedules::{Overlap, Spec};
///
/// # fn main() -> Result<(), delayline::Error> {
/// let report = Spec::cron("30 8 * * mon-fri", "Europe/Berlin", "reports")?
///     .payload(&"sales")?
///     .grace(Duration::from_secs(6 * 3_600))?;
/// let sync = Spec::every(Duration::from_secs(60), "sync")?.overlap(Overlap::Skip);
/// # assert!(report.upcoming(std::time::SystemTime::now()).take(10).count() == 10);
/// # assert_eq!(sync.queue(), "sync");
/// # Ok(())
/// # }
/// ```
///
/// Its `Serialize` and `Deserialize` are for JSON by `serde_json` alone: a payload keeps its
/// numbers as they were written, which other formats cannot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Form", into = "Form")]
pub struct Spec {
    when: When,
    queue: QueueName,
    payload: Payload,
    kind: Option<String>,
    group: Option<Group>,
    overlap: Overlap,
    lead: Option<Millis>,
    grace: Millis,
}

/// Whether a tick is sent while the message of an earlier tick is not finished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Overlap {
    /// It is sent, with the id `NAME@TICK`, where the tick is in milliseconds since 1970.
    #[default]
    Allow,
    /// It is skipped. All ticks have the id `NAME@`, and are sent when they are due, without a
    /// lead. A dead letter is not finished: ticks are skipped until it is redriven or removed.
    ///
    /// If a scheduler is killed, each tick still has one message at most. A scheduler may be
    /// suspended between its check and its send. If the queue has forgotten the tick by then, the
    /// tick gets a second message. The queue forgets it after four later ticks, an hour, or
    /// [`run_now`](super::Schedules::run_now).
    Skip,
}

#[derive(Clone, Debug, PartialEq)]
enum When {
    Every(Millis),
    Cron { line: String, zone: String, parsed: Cron, time_zone: TimeZone },
}

/// The stored form of a spec, without the fields that have their defaults.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    every_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cron: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    zone: Option<String>,
    queue: String,
    #[serde(default)]
    payload: Payload,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    overlap: Overlap,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lead_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    grace_ms: Option<u64>,
}

impl Spec {
    /// Creates a schedule for the instants that a cron line matches in an IANA time zone, such as
    /// `Europe/Berlin` or `UTC`.
    ///
    /// A line has five fields: minute, hour, day of the month, month, day of the week (0 and 7 are
    /// Sunday), with lists, ranges, steps and English names. A sixth field in front of them is the
    /// second. Or it is `@hourly`, `@daily`, `@weekly`, `@monthly` or `@yearly`; or `@every 90s`,
    /// which is an [interval](Self::every) and does not depend on the time zone.
    ///
    /// | day | in the day of the month | | in the day of the week |
    /// |---|---|---|---|
    /// | `L` | the last day | `5L` | the last Friday |
    /// | `L-3` | three days before the last day | `5#2` | the second Friday |
    /// | `15W` | the day from Monday to Friday nearest to the 15th, in the same month | | |
    /// | `LW` | the last day from Monday to Friday | | |
    /// | `?` | like `*` | `?` | like `*` |
    ///
    /// If neither day field begins with `*`, a day needs to match only one of them. Where a clock
    /// change skips a fixed time, the tick is at the change; a repeated time counts once. Lines
    /// whose minutes or hours begin with `*` follow the elapsed time.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for a malformed line, a line that matches
    /// no date, an unknown time zone, or an invalid queue name.
    pub fn cron(line: &str, zone: &str, queue: &str) -> Result<Self, Error> {
        Ok(Self::new(When::cron(line, zone)?, QueueName::new(queue)?))
    }

    /// Creates a schedule with a fixed interval of 1 second to 366 days, counted from 1970 in UTC:
    /// an interval of a minute has its ticks at full minutes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for an interval outside its limits, or an
    /// invalid queue name.
    pub fn every(interval: Duration, queue: &str) -> Result<Self, Error> {
        Ok(Self::new(When::every(whole_ms(interval))?, QueueName::new(queue)?))
    }

    fn new(when: When, queue: QueueName) -> Self {
        let (payload, overlap) = (Payload::default(), Overlap::default());
        let (kind, group, lead, grace) = (None, None, None, DEFAULT_GRACE);
        Self { when, queue, payload, kind, group, overlap, lead, grace }
    }

    /// Sets the payload of the messages, up to 15 KiB of JSON. Without it, the payload is `null`.
    /// Numbers of any size and precision are kept; the members of objects are sorted.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Encode`](crate::ErrorKind::Encode) if the value cannot be encoded as JSON.
    pub fn payload<T: Serialize + ?Sized>(mut self, value: &T) -> Result<Self, Error> {
        let encoded = Json.encode(value).map_err(Error::encode)?;
        self.payload = Payload::new(&encoded).map_err(|_| not_json())?;
        Ok(self)
    }

    /// Sets the payload and its kind, for workers of [`Jobs`](crate::Jobs).
    ///
    /// # Errors
    ///
    /// Like [`payload`](Self::payload), and [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for a
    /// [kind](Kind::KIND) that no message may have.
    pub fn job<T: Serialize + Kind + ?Sized>(self, value: &T) -> Result<Self, Error> {
        Headers::new().set_kind(T::KIND)?;
        Ok(Self { kind: Some(T::KIND.to_owned()), ..self.payload(value)? })
    }

    /// Sets the group of the messages, such as a tenant: see [`Draft::group`](crate::Draft::group).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the name is empty or has more than 128
    /// bytes.
    pub fn group<G>(mut self, group: G) -> Result<Self, Error>
    where
        G: TryInto<Group, Error: Into<Error>>,
    {
        self.group = Some(group.try_into().map_err(Into::into)?);
        Ok(self)
    }

    /// Sets whether a tick is sent while the message of an earlier tick is not finished.
    #[must_use]
    pub fn overlap(mut self, overlap: Overlap) -> Self {
        self.overlap = overlap;
        self
    }

    /// Sets how long before its instant the message of a tick is created, so that no scheduler has
    /// to run at the instant: 0 to 1 hour, and at most 100 intervals, or 100 s for a line with
    /// several seconds. The default is one minute. A [skipping](Overlap::Skip) schedule has no
    /// lead.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) beyond these limits.
    pub fn lead(mut self, lead: Duration) -> Result<Self, Error> {
        self.lead = Some(self.when.valid_lead(whole_ms(lead))?);
        Ok(self)
    }

    /// Sets how late a tick may be sent, up to 31 days; the default is one day. After a downtime,
    /// the latest missed tick is sent once, unless it is older than this.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) beyond this limit.
    pub fn grace(mut self, grace: Duration) -> Result<Self, Error> {
        self.grace = valid_grace(whole_ms(grace))?;
        Ok(self)
    }

    /// The name of the queue that gets the messages.
    #[must_use]
    pub fn queue(&self) -> &str {
        self.queue.as_str()
    }

    /// The time zone of its cron line, or `None` if it has an interval.
    #[must_use]
    pub fn zone(&self) -> Option<&str> {
        match &self.when {
            When::Every(_) => None,
            When::Cron { zone, .. } => Some(zone),
        }
    }

    /// The instants after `after`, in order. Empty if `after` is outside the years 1970 to 9999.
    pub fn upcoming(&self, after: SystemTime) -> impl Iterator<Item = SystemTime> + '_ {
        // Rounded down: an instant within the same millisecond is later.
        let after = after.duration_since(SystemTime::UNIX_EPOCH).ok();
        let after = after.and_then(|after| u64::try_from(after.as_millis()).ok());
        let last = delayline_core::Timestamp::MAX.as_ms();
        let next = move |&ms: &u64| self.when.next(ms).filter(|&ms| ms <= last);
        std::iter::successors(after.and_then(|after| next(&after)), next)
            .map(|ms| SystemTime::UNIX_EPOCH + Duration::from_millis(ms))
    }

    /// Whether another spec has the same instants, created at the same times.
    pub(super) fn has_times_of(&self, other: &Self) -> bool {
        self.when == other.when && self.lead_ms() == other.lead_ms()
    }

    pub(super) const fn overlap_rule(&self) -> Overlap {
        self.overlap
    }

    pub(super) const fn queue_name(&self) -> &QueueName {
        &self.queue
    }

    /// The payload and headers of each message.
    pub(super) fn content(&self) -> Result<(Bytes, Option<&str>), Error> {
        let payload = Bytes::copy_from_slice(self.payload.as_str().as_bytes());
        Ok((payload, self.kind.as_deref()))
    }

    /// The group of each message.
    pub(super) const fn message_group(&self) -> Option<&Group> {
        self.group.as_ref()
    }

    /// How long before its instant a tick is created, in milliseconds.
    pub(super) fn lead_ms(&self) -> u64 {
        match (self.overlap, self.lead) {
            (Overlap::Skip, _) => 0,
            (Overlap::Allow, Some(lead)) => lead.as_ms(),
            (Overlap::Allow, None) => DEFAULT_LEAD_MS.min(self.when.longest_lead()),
        }
    }

    pub(super) const fn grace_ms(&self) -> u64 {
        self.grace.as_ms()
    }

    /// The instants after `now` whose messages may already exist.
    pub(super) fn ahead(&self, now: u64) -> impl Iterator<Item = u64> + '_ {
        let last = now.saturating_add(self.lead_ms());
        std::iter::successors(self.next(now), |&tick| self.next(tick))
            .take_while(move |&tick| tick <= last)
    }

    /// The latest instant up to `now` in the last 31 days, both in milliseconds since 1970.
    pub(super) fn previous(&self, now: u64) -> Option<u64> {
        // A line can only be searched forwards, so each search starts earlier.
        let earlier = |&back: &u64| (back < SEARCHED_MS).then(|| (back * 2).min(SEARCHED_MS));
        std::iter::successors(Some(SHORTEST_INTERVAL_MS), earlier).find_map(|back| {
            let first = self.next(now.saturating_sub(back));
            let ticks = std::iter::successors(first, |&tick| self.next(tick));
            ticks.take_while(|&tick| tick <= now).last()
        })
    }

    /// The first instant after `ms`, both in milliseconds since 1970.
    pub(super) fn next(&self, ms: u64) -> Option<u64> {
        self.when.next(ms)
    }
}

impl When {
    fn every(interval_ms: u64) -> Result<Self, Violation> {
        if (SHORTEST_INTERVAL_MS..=LONGEST_INTERVAL_MS).contains(&interval_ms) {
            return Ok(Self::Every(Millis::new(interval_ms)?));
        }
        let reason = "a schedule has an interval of 1 second to 366 days";
        Err(malformed("the interval", interval_ms, reason))
    }

    fn cron(line: &str, zone: &str) -> Result<Self, Violation> {
        let interval = line.trim_start().strip_prefix("@every ").map(interval).transpose()?;
        let time_zone = TimeZone::get(zone).map_err(|_| Violation::Malformed {
            what: "the time zone",
            value: zone.chars().take(100).collect(),
            reason: "it is not in the time zone database; write a name such as Europe/Berlin"
                .to_owned(),
        })?;
        if let Some(interval) = interval {
            return Self::every(whole_ms(interval));
        }
        let (parsed, line, zone) = (Cron::parse(line)?, line.to_owned(), zone.to_owned());
        Ok(Self::Cron { line, zone, parsed, time_zone })
    }

    fn next(&self, after_ms: u64) -> Option<u64> {
        match self {
            Self::Every(interval) => {
                let interval = interval.as_ms();
                (after_ms / interval).checked_add(1)?.checked_mul(interval)
            }
            Self::Cron { parsed, time_zone, .. } => {
                let after = i64::try_from(after_ms).ok()?;
                let next = parsed.next(time_zone, Timestamp::from_millisecond(after).ok()?)?;
                u64::try_from(next.as_millisecond()).ok()
            }
        }
    }

    /// In milliseconds.
    fn longest_lead(&self) -> u64 {
        let interval = match self {
            Self::Every(interval) => interval.as_ms(),
            Self::Cron { parsed, .. } => parsed.shortest_interval_ms(),
        };
        LONGEST_LEAD_MS.min(interval * MOST_AHEAD)
    }

    fn valid_lead(&self, lead_ms: u64) -> Result<Millis, Violation> {
        if lead_ms <= self.longest_lead() {
            return Millis::new(lead_ms);
        }
        let reason = "a schedule has a lead of at most 1 hour and 100 intervals; a line with \
                      several seconds has one of at most 100 s";
        Err(malformed("the lead", lead_ms, reason))
    }
}

/// The interval of a line such as `@every 1h30m`.
fn interval(text: &str) -> Result<Duration, Violation> {
    let parsed = text.trim().parse::<SignedDuration>().ok();
    parsed.and_then(|it| Duration::try_from(it).ok()).ok_or_else(|| Violation::Malformed {
        what: "the interval",
        value: text.chars().take(100).collect(),
        reason: "write hours, minutes or seconds: @every 36h, @every 1h30m".to_owned(),
    })
}

fn valid_grace(grace_ms: u64) -> Result<Millis, Violation> {
    if grace_ms <= LONGEST_GRACE_MS {
        return Millis::new(grace_ms);
    }
    Err(malformed("the grace", grace_ms, "a schedule has a grace of at most 31 days"))
}

fn malformed(what: &'static str, ms: u64, reason: &str) -> Violation {
    Violation::Malformed { what, value: format!("{ms} ms"), reason: reason.to_owned() }
}

fn not_json() -> Error {
    Error::encode(crate::codec::CodecError::new("it is not JSON"))
}

impl TryFrom<Form> for Spec {
    type Error = Violation;

    fn try_from(form: Form) -> Result<Self, Violation> {
        let when = match (form.every_ms, form.cron, form.zone) {
            (Some(every), None, None) => When::every(every)?,
            (None, Some(line), zone) => When::cron(&line, zone.as_deref().unwrap_or("UTC"))?,
            _ => {
                return Err(Violation::Malformed {
                    what: "the schedule for the queue",
                    value: form.queue.chars().take(100).collect(),
                    reason: "it needs either an interval, or a cron line with a zone".to_owned(),
                });
            }
        };
        let lead = form.lead_ms.map(|lead| when.valid_lead(lead)).transpose()?;
        let grace = form.grace_ms.map_or(Ok(DEFAULT_GRACE), valid_grace)?;
        if let Some(kind) = &form.kind {
            Headers::new().set_kind(kind)?;
        }
        let (queue, group) = (QueueName::new(form.queue)?, form.group.map(Group::new).transpose()?);
        let (payload, kind, overlap) = (form.payload, form.kind, form.overlap);
        Ok(Self { when, queue, payload, kind, group, overlap, lead, grace })
    }
}

impl From<Spec> for Form {
    fn from(spec: Spec) -> Self {
        let (every_ms, cron, zone) = match spec.when {
            When::Every(interval) => (Some(interval.as_ms()), None, None),
            When::Cron { line, zone, .. } => (None, Some(line), Some(zone)),
        };
        Self {
            every_ms,
            cron,
            zone,
            queue: spec.queue.as_str().to_owned(),
            payload: spec.payload,
            kind: spec.kind,
            group: spec.group.map(|group| group.as_str().to_owned()),
            overlap: spec.overlap,
            lead_ms: spec.lead.map(Millis::as_ms),
            grace_ms: (spec.grace != DEFAULT_GRACE).then(|| spec.grace.as_ms()),
        }
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

const SHORTEST_INTERVAL_MS: u64 = 1_000;
/// How far back to search for the latest instant.
const SEARCHED_MS: u64 = 31 * 86_400_000;
const LONGEST_INTERVAL_MS: u64 = 366 * 86_400_000;
/// Longer than a scheduler's lease, so that ticks exist before a scheduler's death can delay them.
const DEFAULT_LEAD_MS: u64 = 60_000;
const LONGEST_LEAD_MS: u64 = 3_600_000;
/// Maximum number of intervals of a lead.
const MOST_AHEAD: u64 = 100;
const DEFAULT_GRACE: Millis = Millis::saturating(86_400_000);
const LONGEST_GRACE_MS: u64 = 31 * 86_400_000;
