//! What consumers save with their messages.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use delayline::Bytes;
use delayline::backend::Save;
use delayline::message::Progress;

/// The members of a save, in an item of an extension or a settlement.
#[derive(Default)]
pub(super) struct Saved {
    pub(super) progress: Option<f64>,
    pub(super) progress_text: Option<String>,
    pub(super) checkpoint: Option<String>,
    pub(super) checkpoint_base64: Option<String>,
}

impl Saved {
    pub(super) const NAMES: [&str; 4] =
        ["progress", "progress_text", "checkpoint", "checkpoint_base64"];

    /// Returns the save, if there is something to save.
    pub(super) fn read(self) -> Result<Option<Save>, String> {
        let progress = match (self.progress, self.progress_text) {
            (Some(done), _) if !(0.0..=1.0).contains(&done) => {
                return Err("progress is a number from 0 to 1".to_owned());
            }
            (Some(done), text) => Some(Progress::new(done, text.unwrap_or_default())),
            (None, Some(_)) => return Err("progress_text needs progress".to_owned()),
            (None, None) => None,
        };
        let checkpoint = match (self.checkpoint, self.checkpoint_base64) {
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
        if progress.is_none() && checkpoint.is_none() {
            return Ok(None);
        }
        let save = Save::new(number()).progress(progress).checkpoint(checkpoint);
        save.validate().map_err(|violation| violation.to_string())?;
        Ok(Some(save))
    }
}

/// The number of the next save. It grows with each save of this process; those of several servers
/// are ordered by their clocks.
fn number() -> u64 {
    static LATEST: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let now = u64::try_from(now.as_millis()).unwrap_or(0);
    let next = |latest: u64| now.max(latest.saturating_add(1));
    let latest =
        LATEST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |latest| Some(next(latest)));
    latest.map_or(now, next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_grow() {
        let numbers: Vec<_> = (0..100).map(|_| number()).collect();
        assert!(numbers.windows(2).all(|it| it[0] < it[1]), "{numbers:?}");
    }

    #[test]
    fn what_is_not_a_save_is_refused() {
        assert_eq!(Saved::default().read(), Ok(None));
        let text = |text: &str| Some(text.to_owned());
        for (saved, reason) in [
            (Saved { progress: Some(1.1), ..Saved::default() }, "from 0 to 1"),
            (Saved { progress_text: text("x"), ..Saved::default() }, "needs progress"),
            (Saved { checkpoint_base64: text("?"), ..Saved::default() }, "is not base64"),
            (Saved { checkpoint: text(&"x".repeat(4_097)), ..Saved::default() }, "4097 bytes"),
            (
                Saved { checkpoint: text(""), checkpoint_base64: text(""), ..Saved::default() },
                "it has both",
            ),
        ] {
            let refused = saved.read().unwrap_err();
            assert!(refused.contains(reason), "{refused}");
        }
    }
}
