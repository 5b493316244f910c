//! The bodies of the fuzz targets: plain functions of bytes, which panic when something is wrong.
//!
//! `fuzz_targets` hands them to libFuzzer; `tests/replay.rs` runs them on the files in `seeds`.

mod connect_url;
mod error_line;
mod headers;
mod reply;
mod trace;

pub use connect_url::connect_url;
pub use error_line::error_line;
pub use headers::headers;
pub use reply::reply;
pub use trace::trace;

/// A target.
pub type Target = fn(&[u8]);

/// All targets by name, which is also the name of the folder in `seeds`.
pub const TARGETS: [(&str, Target); 5] = [
    ("connect_url", connect_url),
    ("error_line", error_line),
    ("headers", headers),
    ("reply", reply),
    ("trace", trace),
];
