//! What handlers save with their messages.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use delayline::Bytes;
use delayline::backend::Save;
use delayline::message::Progress;
use serde_json::Value;

use crate::object::Object;

/// The progress and the checkpoint that a handler saves, from the members of a JSON object.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// The new progress; `None` keeps the stored one.
    pub progress: Option<Progress>,
    /// The new checkpoint; `None` keeps the stored one.
    pub checkpoint: Option<Bytes>,
}

impl Saved {
    /// The names of the members: a share from 0 to 1 and its text, and the checkpoint as text or in
    /// base64.
    pub const NAMES: [&str; 4] = ["progress", "progress_text", "checkpoint", "checkpoint_base64"];

    /// Reads the members from an object, given the value of each name.
    ///
    /// # Errors
    ///
    /// The reason, in words: a value of another type, or one beyond its limit. No value is
    /// repeated.
    pub fn read(member: impl Fn(&str) -> Option<Value>) -> Result<Self, String> {
        let text = |name: &str| match member(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(format!("{name} must be a string")),
        };
        let done = member("progress").map(|done| done.as_f64().unwrap_or(f64::NAN));
        let progress = match (done, text("progress_text")?) {
            (Some(done), _) if !(0.0..=1.0).contains(&done) => {
                return Err("progress is a number from 0 to 1".to_owned());
            }
            (Some(done), text) => Some(Progress::new(done, text.unwrap_or_default())),
            (None, Some(_)) => return Err("progress_text needs progress".to_owned()),
            (None, None) => None,
        };
        let checkpoint = match (text("checkpoint")?, text("checkpoint_base64")?) {
            (None, None) => None,
            (Some(text), None) => Some(Bytes::from(text)),
            (None, Some(base64)) => {
                let bytes = STANDARD.decode(base64);
                Some(bytes.map_err(|_| "checkpoint_base64 is not base64".to_owned())?.into())
            }
            (Some(_), Some(_)) => {
                return Err("it has both checkpoint and checkpoint_base64".to_owned());
            }
        };
        let saved = Self { progress, checkpoint };
        saved.numbered(0).validate().map_err(|violation| violation.to_string())?;
        Ok(saved)
    }

    /// Reads a JSON object that has these members and no others, and at least one of them.
    ///
    /// # Errors
    ///
    /// The reason, in words, as in [`read`](Self::read).
    pub fn from_json(json: &[u8]) -> Result<Self, String> {
        let object: Object<Value> =
            serde_json::from_slice(json).map_err(|_| "it must be a JSON object".to_owned())?;
        let members = object.members()?;
        let names = Self::NAMES;
        if members.is_empty() || members.iter().any(|(name, _)| !names.contains(&name.as_str())) {
            return Err(format!("its fields are {}", names.join(", ")));
        }
        let find = |wanted: &str| members.iter().find(|(name, _)| name == wanted);
        Self::read(|name| find(name).map(|(_, value)| value.clone()))
    }

    /// Returns the save with this number: see [`Save::number`].
    #[must_use]
    pub fn numbered(&self, number: u64) -> Save {
        Save::new(number).progress(self.progress.clone()).checkpoint(self.checkpoint.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_save_is_an_object_of_progress_and_checkpoint() {
        let json =
            br#"{"progress": 40e-2, "progress_text": "page 12", "checkpoint_base64": "/wA="}"#;
        let expected = Saved {
            progress: Some(Progress::new(0.4, "page 12")),
            checkpoint: Some(Bytes::from_static(b"\xff\0")),
        };
        assert_eq!(Saved::from_json(json), Ok(expected));
    }

    #[test]
    fn what_is_not_a_save_is_refused() {
        let long = format!(r#"{{"checkpoint": "{}"}}"#, "x".repeat(4_097));
        for (json, reason) in [
            ("12", "must be a JSON object"),
            ("{}", "its fields are progress,"),
            (r#"{"checkpiont": "x"}"#, "its fields are progress,"),
            (r#"{"progress": 1, "progress": 0}"#, "more than once"),
            (r#"{"progress": 1.1}"#, "from 0 to 1"),
            (r#"{"progress": "0.5"}"#, "from 0 to 1"),
            (r#"{"progress_text": "x"}"#, "needs progress"),
            (r#"{"checkpoint": {"page": 1}}"#, "checkpoint must be a string"),
            (r#"{"checkpoint_base64": "?"}"#, "is not base64"),
            (r#"{"checkpoint": "", "checkpoint_base64": ""}"#, "it has both"),
            (&long, "4097 bytes"),
        ] {
            let refused = Saved::from_json(json.as_bytes()).unwrap_err();
            assert!(refused.contains(reason), "{json}: {refused}");
        }
    }
}
