//! What consumers save with their messages.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use delayline::backend::Save;
use delayline_json::Saved;
use serde_json::Value;
use serde_json::value::RawValue;

use super::input::Members;

/// Reads the save of an item of an extension or a settlement.
pub(super) fn save(members: &Members<'_>) -> Result<Option<Save>, String> {
    let value = |value: &RawValue| match value.get().starts_with(['[', '{']) {
        // None may be a list or an object, and the values in it could take many times its bytes.
        true => Value::Null,
        // What cannot be read, such as a lone surrogate, is of no type that is allowed.
        false => serde_json::from_str(value.get()).unwrap_or_default(),
    };
    let saved = Saved::read(|name| members.get(name).map(value))?;
    Ok((saved != Saved::default()).then(|| saved.numbered(number())))
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
}
