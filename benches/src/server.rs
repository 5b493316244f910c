//! What there is to say of a private server.

use std::time::Duration;

use delayline_test_server::{Reply, Server};

/// The server's version, and what of its settings bears on speed.
///
/// # Panics
///
/// The server is not there.
#[must_use]
pub fn settings(server: &Server) -> String {
    let setting = |name: &&str| format!("{name} \"{}\"", config(server, name));
    let settings: Vec<_> =
        ["save", "appendonly", "io-threads", "maxmemory-policy"].iter().map(setting).collect();
    format!("server {}, {}", server.info("server", "redis_version"), settings.join(", "))
}

/// How much processor time the server has used so far, all of its threads together.
///
/// # Panics
///
/// The server is not there, or does not tell.
#[must_use]
#[expect(clippy::expect_used, reason = "documented")]
pub fn cpu_time(server: &Server) -> Duration {
    let seconds = |field| -> f64 { server.info("cpu", field).parse().expect("seconds") };
    Duration::from_secs_f64(seconds("used_cpu_user") + seconds("used_cpu_sys"))
}

/// The answer is the name and the value.
fn config(server: &Server, name: &str) -> String {
    match server.command(&["CONFIG", "GET", name]) {
        Reply::Array(pair) => match pair.as_slice() {
            [_, Reply::BulkString(value)] => String::from_utf8_lossy(value).into_owned(),
            _ => "unknown".to_owned(),
        },
        _ => "unknown".to_owned(),
    }
}
