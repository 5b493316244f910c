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

/// What a library has sent so far. `INFO` and the like are this program's own.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Requests {
    /// Runs of scripts.
    pub scripts: f64,
    /// Waits for a hint.
    pub waits: f64,
    /// Signs of life.
    pub pings: f64,
}

impl Requests {
    /// What the server has got so far.
    ///
    /// # Panics
    ///
    /// The server is not there.
    #[must_use]
    pub fn of(server: &Server) -> Self {
        let Reply::BulkString(info) = server.command(&["INFO", "commandstats"]) else {
            return Self::default();
        };
        let info = String::from_utf8_lossy(&info).into_owned();
        let calls = |command: &str| {
            let field = format!("cmdstat_{command}:calls=");
            let rest = info.lines().find_map(|line| line.strip_prefix(&*field));
            let calls = rest.and_then(|rest| rest.split(',').next()?.parse::<f64>().ok());
            calls.unwrap_or_default()
        };
        Self {
            scripts: calls("evalsha") + calls("eval"),
            waits: calls("blpop"),
            pings: calls("ping"),
        }
    }

    /// All together.
    #[must_use]
    pub fn sum(self) -> f64 {
        self.scripts + self.waits + self.pings
    }

    /// Commands since an earlier count.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            scripts: self.scripts - before.scripts,
            waits: self.waits - before.waits,
            pings: self.pings - before.pings,
        }
    }
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
