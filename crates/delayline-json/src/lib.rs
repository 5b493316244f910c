//! How the `delayline` command and its HTTP API write things down: messages as JSON, places in a
//! list, times, and text that others wrote.
//!
//! - [`Fields`] reads a message that is to be sent from a JSON object. Its errors never repeat the
//!   payload.
//! - [`Saved`] reads what handlers save with their messages.
//! - [`Object`] is any JSON object, and refuses a name that stands twice. [`distinct`] does so at
//!   every depth.
//! - [`message`], [`info`] and [`stateless`] write a message and its state, and [`sent`] the result
//!   of a send. Bytes that are not UTF-8 are in base64, under `id_base64`, `payload_base64` and so
//!   on.
//! - [`explanation`] says why a message is not delivered; [`stats`] and [`forecast`] count.
//! - [`OwnedSchedules`] and [`schedule_spec`] read schedules, and [`schedule`] writes one.
//! - [`Cursor`] is the place where a list has ended.
//! - [`hint`] says what may help against an error.
//! - [`duration`] and [`instant`] read times; [`moment`] reads them as people write them in their
//!   [`Zone`].
//! - [`harmless`], [`harmless_line`] and [`harmless_json`] escape what could steer a terminal.

mod cursor;
mod fields;
mod finding;
mod hint;
mod history;
mod message;
mod moment;
mod object;
mod saved;
mod schedule;
mod stats;
mod steps;
mod text;
mod time;
mod waiting;

pub use self::cursor::Cursor;
pub use self::fields::{Fields, text_or_compact};
pub use self::finding::finding;
pub use self::hint::hint;
pub use self::history::{
    Series, Span, history, lateness_bucket, lateness_from, lateness_in_words, lateness_series,
    lateness_shares, lateness_within, part_of, series,
};
pub use self::message::{
    Content, done, ended, explanation, headers, id, info, line, member, message, named, progress,
    progress_name, sent, stateless, text_or_base64, without_content,
};
pub use self::moment::{Zone, moment};
pub use self::object::{Object, distinct};
pub use self::saved::Saved;
pub use self::schedule::{OwnedSchedules, schedule, schedule_spec, schedule_times};
pub use self::stats::{
    FORECAST_DELAYS, counts, falling_due, forecast, forecast_delays, lateness, limits, stats,
};
pub use self::steps::{Figures, Past, Step, failures, is_consumed, step_delays, steps};
pub use self::text::{harmless, harmless_json, harmless_line};
pub use self::time::{duration, instant};
