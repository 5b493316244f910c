//! Schedules as people write them, and as they are shown.

use delayline::Timestamp;
use delayline::schedules::{Entry, Spec};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::object::{Object, distinct};
use crate::text::quoted;
use crate::{duration, harmless_line};

/// All schedules of an owner.
#[derive(Clone, Debug)]
pub struct OwnedSchedules {
    /// The owner's name.
    pub owner: String,
    /// The schedules, by their names without the owner's.
    pub schedules: Vec<(String, Spec)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with `owner` and `schedules`")]
struct Form<'a> {
    owner: String,
    #[serde(borrow)]
    schedules: Object<&'a RawValue>,
}

/// The payload of a schedule as it is written: as a [`Value`], its numbers may change.
#[derive(Deserialize)]
struct Written<'a> {
    #[serde(borrow, default)]
    payload: Option<&'a RawValue>,
}

impl OwnedSchedules {
    /// Reads `{"owner": ..., "schedules": {NAME: SCHEDULE, ...}}`, with the fields of
    /// [`schedule_spec`].
    ///
    /// # Errors
    ///
    /// The reason, with the name of the schedule that is malformed, or that the owner has no name.
    pub fn from_json(text: &[u8]) -> Result<Self, String> {
        distinct(text)?;
        let form: Form<'_> = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        if form.owner.is_empty() {
            return Err("the owner must have a name".to_owned());
        }
        let schedules = form.schedules.members()?.into_iter().map(|(name, json)| {
            let about = |reason| format!("schedule {}: {reason}", harmless_line(&name));
            let Ok(fields) = serde_json::from_str(json.get()) else {
                return Err(about("it is not an object".to_owned()));
            };
            let Written { payload } =
                serde_json::from_str(json.get()).map_err(|error| about(error.to_string()))?;
            let spec = schedule_spec(fields, payload).map_err(about)?;
            Ok((name, spec))
        });
        let schedules = schedules.collect::<Result<_, _>>()?;
        Ok(Self { owner: form.owner, schedules })
    }
}

/// Makes a spec of the fields that people write: `queue`, `cron` and `zone` or `every`, `payload`,
/// `kind`, `group`, `overlap`, `lead` and `grace`, with durations such as `5m`. The payload as
/// it is written takes the place of that of the fields, whose numbers may have changed.
///
/// # Errors
///
/// The reason, which never repeats the payload.
pub fn schedule_spec(
    mut fields: Map<String, Value>,
    payload: Option<&RawValue>,
) -> Result<Spec, String> {
    for (name, stored) in DURATIONS {
        let Some(value) = fields.remove(name) else { continue };
        let Value::String(text) = value else {
            return Err(format!("{name} is a duration in quotes, such as \"5m\""));
        };
        let span = duration(&text).map_err(|why| format!("{name}: {why}"))?;
        // Intervals are whole milliseconds.
        let ms = u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        if fields.insert(stored.to_owned(), ms.into()).is_some() {
            return Err(format!("it has both {name} and {stored}"));
        }
    }
    for (name, value) in &fields {
        let expected = match &name[..] {
            "queue" | "cron" | "zone" | "kind" | "group" if !value.is_string() => "a string",
            "overlap" if !matches!(value.as_str(), Some("allow" | "skip")) => "allow or skip",
            "every_ms" | "lead_ms" | "grace_ms" if !value.is_u64() => "a number of milliseconds",
            _ => continue,
        };
        return Err(format!("{name} must be {expected}, not {}", quoted(&value.to_string())));
    }
    let spec: Spec =
        serde_json::from_value(Value::Object(fields)).map_err(|error| error.to_string())?;
    match payload {
        Some(json) => spec.payload(json).map_err(|error| error.to_string()),
        None => Ok(spec),
    }
}

/// Writes a schedule: its name, whether it is paused or a dead letter, its spec as it is stored or
/// null if it cannot be read, its next instants, and how long it is overdue. Without contents, the
/// payload is left out.
#[must_use]
pub fn schedule(entry: &Entry, with_contents: bool) -> Value {
    let mut spec = serde_json::to_value(&entry.spec).unwrap_or_default();
    if !with_contents && let Some(fields) = spec.as_object_mut() {
        fields.remove("payload");
    }
    let next = entry.next.iter().map(|&next| instant_text(next));
    let next: Vec<_> = next.collect();
    json!({
        "name": entry.name,
        "paused": entry.is_paused,
        "dead": entry.is_dead,
        "spec": spec,
        "next": next,
        "overdue_seconds": entry.overdue.as_secs(),
    })
}

/// When a schedule has its instants, in words: its line and zone, or its interval.
#[must_use]
pub fn schedule_times(entry: &Entry) -> String {
    match &entry.spec {
        Some(spec) => times(spec),
        None => "this version cannot read it".to_owned(),
    }
}

fn times(spec: &Spec) -> String {
    let stored = serde_json::to_value(spec).unwrap_or_default();
    match (&stored["cron"], &stored["zone"], stored["every_ms"].as_u64()) {
        (Value::String(line), Value::String(zone), _) => format!("{line}  {zone}"),
        (_, _, Some(ms)) if ms % 1_000 == 0 => format!("every {} s", ms / 1_000),
        (_, _, Some(ms)) => format!("every {ms} ms"),
        _ => String::new(),
    }
}

fn instant_text(instant: std::time::SystemTime) -> String {
    Timestamp::try_from(instant).unwrap_or(Timestamp::MAX).to_string()
}

/// Durations of the fields that people write, and the names under which they are stored.
const DURATIONS: [(&str, &str); 3] =
    [("every", "every_ms"), ("lead", "lead_ms"), ("grace", "grace_ms")];

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_an_owner_and_schedules() {
        let text = br#"{"owner": "shop", "schedules": {
            "a": {"cron": "30 8 * * *", "zone": "Europe/Berlin", "queue": "reports"},
            "b": {"every": "90s", "queue": "sync", "payload": {"x": 12345678901234567890123},
                  "overlap": "skip",
                  "group": "t-7", "lead": "0s", "grace": "1h"}}}"#;
        let OwnedSchedules { owner, schedules } =
            OwnedSchedules::from_json(text).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(owner, "shop");
        let stored = serde_json::to_value(&schedules[1].1).unwrap();
        assert_eq!((&schedules[0].0[..], &schedules[1].0[..]), ("a", "b"));
        let text = serde_json::to_string(&schedules[1].1).unwrap();
        assert!(text.contains(r#""payload":{"x":12345678901234567890123}"#), "{text}");
        assert_eq!(stored["group"], "t-7");
        assert_eq!((&stored["every_ms"], &stored["grace_ms"]), (&90_000.into(), &3_600_000.into()));
    }

    #[test]
    fn times_are_a_line_and_its_zone_or_an_interval() {
        for (spec, words) in [
            (json!({"queue": "q", "cron": "30 8 * * *"}), "30 8 * * *  UTC"),
            (json!({"queue": "q", "every": "90s"}), "every 90 s"),
            (json!({"queue": "q", "every": "1500ms"}), "every 1500 ms"),
        ] {
            let Value::Object(fields) = spec else { panic!("no object") };
            assert_eq!(times(&schedule_spec(fields, None).unwrap()), words);
        }
    }

    #[test]
    fn a_bad_file_is_refused_by_name_and_reason() {
        for (schedule, reason) in [
            (r#"{"queue": "x"}"#, "either"),
            (r#"{"queue": "x", "every": "1s", "cron": "@daily"}"#, "either"),
            (r#"{"queue": "x", "every": 60}"#, "duration in quotes"),
            (r#"{"queue": 7, "every": "1m"}"#, "queue must be a string"),
            (r#"{"queue": "x", "every": "1m", "zone": null}"#, "zone must be a string"),
            (r#"{"queue": "x", "every": "1m", "overlap": "no"}"#, "overlap must be allow or skip"),
            (r#"{"queue": "x", "every": "1m", "group": 7}"#, "group must be a string"),
            (r#"{"queue": "x", "every": "1m", "group": ""}"#, "the group is empty"),
            (r#"{"queue": "x", "every_ms": -1}"#, "every_ms must be a number of milliseconds"),
            (r#"{"queue": "x", "every": "1ms"}"#, "1 second"),
            (r#"{"queue": "x", "cron": "0 0 31 2 *"}"#, "no date"),
            (r#"{"queue": "x", "cron": "@daily", "zone": "Mars/Base"}"#, "time zone"),
            (r#"{"queue": "a b", "every": "1m"}"#, "queue"),
            (r#"{"queue": "x", "every": "1m", "leed": "1m"}"#, "leed"),
            (r#"{"queue": "x", "every": "1m", "every_ms": 60000}"#, "both every and every_ms"),
            ("7", "not an object"),
        ] {
            let text = format!(r#"{{"owner": "o", "schedules": {{"s": {schedule}}}}}"#);
            let error = OwnedSchedules::from_json(text.as_bytes()).err().unwrap_or_default();
            assert!(error.starts_with("schedule s: "), "{schedule}: {error}");
            assert!(error.contains(reason), "{schedule}: {error}");
        }
        for twice in [
            r#"{"owner": "o", "schedules": {"s": 1, "s": 2}}"#,
            r#"{"owner": "o", "schedules": {"a": {"every": "1m", "s": 1, "s": 1}}}"#,
            r#"{"owner": "o", "schedules": {"a": {"payload": [{"s": [], "\u0073": {}}]}}}"#,
        ] {
            let error = OwnedSchedules::from_json(twice.as_bytes()).err().unwrap_or_default();
            assert!(
                error.starts_with("the field \"s\" appears more than once at line 1"),
                "{error}"
            );
        }
        assert!(
            OwnedSchedules::from_json(b"{").is_err()
                && OwnedSchedules::from_json(br#"{"owner": "o"}"#).is_err()
        );
    }
}
