//! The bodies of the fuzz targets: plain functions of bytes, which panic when something is wrong.
//!
//! `libfuzzer` hands them to libFuzzer; `tests/replay.rs` runs them on the files in `seeds`.

mod arguments;
mod connect_url;
mod directory;
mod error_line;
mod headers;
mod json_lines;
mod names;
mod reply;
mod retry_delay;
mod simulation;
mod sqs;
mod times;
mod topology;
mod trace;
mod upgrade;
mod web;

pub use arguments::arguments;
pub use connect_url::connect_url;
pub use directory::directory;
pub use error_line::error_line;
pub use headers::headers;
pub use json_lines::json_lines;
pub use names::names;
pub use reply::reply;
pub use retry_delay::retry_delay;
pub use simulation::simulation;
pub use sqs::sqs;
pub use times::times;
pub use topology::topology;
pub use trace::trace;
pub use upgrade::upgrade;
pub use web::web;

/// A target.
pub type Target = fn(&[u8]);

/// All targets by name, which is also the name of the folder in `seeds`.
pub const TARGETS: [(&str, Target); 16] = [
    ("arguments", arguments),
    ("connect_url", connect_url),
    ("directory", directory),
    ("error_line", error_line),
    ("headers", headers),
    ("json_lines", json_lines),
    ("names", names),
    ("reply", reply),
    ("retry_delay", retry_delay),
    ("simulation", simulation),
    ("sqs", sqs),
    ("times", times),
    ("topology", topology),
    ("trace", trace),
    ("upgrade", upgrade),
    ("web", web),
];
