//! Schedules as people write them.

use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

use delayline::schedules::Spec;
use delayline_json::{duration, harmless_line};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::failure::Failure;

/// The schedules of an owner.
pub(super) struct Owned {
    pub(super) owner: String,
    pub(super) schedules: Vec<(String, Spec)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    owner: String,
    schedules: Map<String, Value>,
}

/// Reads a file; `-` is stdin.
pub(super) fn read(path: &Path) -> Result<Owned, Failure> {
    let mut text = Vec::new();
    let read = if path == Path::new("-") {
        io::stdin().lock().take(LARGEST).read_to_end(&mut text)
    } else {
        fs::File::open(path).and_then(|file| file.take(LARGEST).read_to_end(&mut text))
    };
    let bytes = read
        .map_err(|error| Failure::usage(format!("{} cannot be read: {error}", path.display())))?;
    if bytes as u64 == LARGEST {
        return Err(Failure::input("the file has more than 64 MiB"));
    }
    parse(&text).map_err(|reason| Failure::input(reason).hint("nothing was changed"))
}

fn parse(text: &[u8]) -> Result<Owned, String> {
    let file: File =
        serde_json::from_slice(text).map_err(|error| format!("the file is malformed: {error}"))?;
    let schedules = file.schedules.into_iter().map(|(name, value)| {
        let about = |reason| format!("schedule {}: {reason}", harmless_line(&name));
        let Value::Object(fields) = value else {
            return Err(about("it is not an object".to_owned()));
        };
        let spec = spec(fields).map_err(about)?;
        Ok((name, spec))
    });
    let schedules = schedules.collect::<Result<_, _>>()?;
    Ok(Owned { owner: file.owner, schedules })
}

/// Makes a spec of the fields that people write, with durations such as `5m`.
pub(super) fn spec(mut fields: Map<String, Value>) -> Result<Spec, String> {
    for (name, stored) in [("every", "every_ms"), ("lead", "lead_ms"), ("grace", "grace_ms")] {
        let Some(value) = fields.remove(name) else { continue };
        let Value::String(text) = value else {
            return Err(format!("{name} is a duration in quotes, such as \"5m\""));
        };
        let span = duration(&text)?;
        // Intervals are whole milliseconds.
        let ms = u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        fields.insert(stored.to_owned(), ms.into());
    }
    serde_json::from_value(Value::Object(fields)).map_err(|error| error.to_string())
}

/// Maximum number of bytes of a file.
const LARGEST: u64 = 64 << 20;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_an_owner_and_schedules() {
        let text = br#"{"owner": "shop", "schedules": {
            "a": {"cron": "30 8 * * *", "zone": "Europe/Berlin", "queue": "reports"},
            "b": {"every": "90s", "queue": "sync", "payload": {"x": 1}, "overlap": "skip",
                  "lead": "0s", "grace": "1h"}}}"#;
        let Owned { owner, schedules } = parse(text).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(owner, "shop");
        let stored = serde_json::to_value(&schedules[1].1).unwrap();
        assert_eq!((&schedules[0].0[..], &schedules[1].0[..]), ("a", "b"));
        assert_eq!((&stored["every_ms"], &stored["grace_ms"]), (&90_000.into(), &3_600_000.into()));
    }

    #[test]
    fn a_bad_file_is_refused_by_name_and_reason() {
        for (schedule, reason) in [
            (r#"{"queue": "x"}"#, "either"),
            (r#"{"queue": "x", "every": "1s", "cron": "@daily"}"#, "either"),
            (r#"{"queue": "x", "every": 60}"#, "duration in quotes"),
            (r#"{"queue": "x", "every": "1ms"}"#, "1 second"),
            (r#"{"queue": "x", "cron": "0 0 31 2 *"}"#, "no date"),
            (r#"{"queue": "x", "cron": "@daily", "zone": "Mars/Base"}"#, "time zone"),
            (r#"{"queue": "a b", "every": "1m"}"#, "queue"),
            (r#"{"queue": "x", "every": "1m", "leed": "1m"}"#, "leed"),
            ("7", "not an object"),
        ] {
            let text = format!(r#"{{"owner": "o", "schedules": {{"s": {schedule}}}}}"#);
            let error = parse(text.as_bytes()).err().unwrap_or_default();
            assert!(error.starts_with("schedule s: "), "{schedule}: {error}");
            assert!(error.contains(reason), "{schedule}: {error}");
        }
        assert!(parse(b"{").is_err() && parse(br#"{"owner": "o"}"#).is_err());
    }
}
