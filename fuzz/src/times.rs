//! Durations and instants, as people write them and as programs have them.

use std::time::{Duration, UNIX_EPOCH};

use delayline_cli::reading;
use delayline_core::limits::{MAX_DELAY_MS, MAX_TIMESTAMP_MS};
use delayline_core::{Millis, Timestamp};

/// Reads the bytes as a duration, as an instant, and as numbers of milliseconds.
///
/// # Panics
///
/// Something is read as another time than it says, or something out of range is taken.
pub fn times(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        // Whatever is taken is one of both, and never before the beginning of time.
        let duration = reading::duration(text);
        if let Ok(instant) = reading::instant(text) {
            assert!(duration.is_err(), "{text:?} is an instant and a duration");
            assert!(instant >= UNIX_EPOCH, "{text:?}");
            assert_eq!(reading::typed(text), Ok(instant), "{text:?}");
        }
        if let Ok(moment) = reading::typed(text) {
            assert!(moment >= UNIX_EPOCH, "{text:?}");
            assert!(duration.is_err() || !text.contains(':'), "{text:?} is no delay");
        }
        if let Ok(duration) = duration {
            delay(duration);
        }
    }
    let number = |range: std::ops::Range<usize>| {
        data.get(range).and_then(|bytes| bytes.try_into().ok()).map(u64::from_be_bytes)
    };
    let (Some(seconds), Some(ms)) = (number(0..8), number(8..16)) else { return };
    delay(Duration::new(seconds, u32::try_from(ms % 1_000_000_000).unwrap_or_default()));
    assert_eq!(Millis::new(ms).is_ok(), ms <= MAX_DELAY_MS);
    assert_eq!(Timestamp::from_ms(ms).is_ok(), ms <= MAX_TIMESTAMP_MS);
    if let (Ok(now), Ok(delay)) =
        (Timestamp::from_ms(ms), Millis::new(seconds % (MAX_DELAY_MS + 1)))
    {
        let due = now.after(delay);
        assert!(due >= now && due <= Timestamp::MAX);
        // Never early: the whole delay passes, unless time itself ends before.
        assert!(due == Timestamp::MAX || due.since(now) == Duration::from(delay));
    }
}

/// A delay is rounded up to the millisecond, or refused.
fn delay(duration: Duration) {
    match Millis::try_from(duration) {
        Ok(delay) => {
            assert!(Duration::from(delay) >= duration);
            assert!(Duration::from(delay) - duration < Duration::from_millis(1));
        }
        Err(_) => assert!(duration > Duration::from_millis(MAX_DELAY_MS - 1)),
    }
}
