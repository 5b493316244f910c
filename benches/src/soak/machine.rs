//! What this process and its servers use, from one idle spell to the next.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use delayline_core::QueueName;
use delayline_redis_protocol::{KEY_NAMES, Keys, layout};
use delayline_test_server::{Reply, Server};

/// This process, at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process {
    pub(crate) resident_bytes: f64,
    pub(crate) descriptors: usize,
}

/// A server, at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    pub(crate) clients: f64,
    /// Without its keys.
    pub(crate) used_bytes: f64,
    /// Number of keys that exist only while the queue has live messages.
    pub(crate) keys_of_messages: usize,
}

impl Process {
    pub(crate) fn now() -> Result<Self> {
        let status = fs::read_to_string("/proc/self/status").context("the soak needs Linux")?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kibibytes = resident.and_then(|rest| rest.split_whitespace().next());
        let kibibytes: f64 = kibibytes.context("no VmRSS in /proc/self/status")?.parse()?;
        // Reading the directory takes one itself.
        let descriptors = fs::read_dir("/proc/self/fd")?.count().saturating_sub(1);
        Ok(Self { resident_bytes: kibibytes * 1024.0, descriptors })
    }
}

impl Usage {
    /// Looks at the server of these queues. It takes a while if there are many.
    pub(crate) fn of(server: &Server, queues: &[QueueName]) -> Result<Self> {
        let (mut bytes_of_keys, mut keys_of_messages) = (0.0, 0);
        let mut connection = server.admin()?;
        for queue in queues {
            let keys = Keys::new(queue);
            let mut pipe = redis::pipe();
            for key in keys.all() {
                pipe.cmd("MEMORY").arg("USAGE").arg(&key[..]).arg("SAMPLES").arg(100);
            }
            let sizes: Vec<Option<f64>> = pipe.query(&mut connection)?;
            for (name, size) in KEY_NAMES.iter().zip(sizes) {
                bytes_of_keys += size.unwrap_or_default();
                keys_of_messages += usize::from(size.is_some() && !STAYS.contains(name));
            }
        }
        let used: f64 = server.info("memory", "used_memory").parse()?;
        let clients = server.info("clients", "connected_clients").parse()?;
        Ok(Self { clients, used_bytes: used - bytes_of_keys, keys_of_messages })
    }
}

/// Keys that still exist after all retention times, except the ones that G24 allows.
pub(crate) fn residue(server: &Server, queues: &[QueueName]) -> Result<Vec<String>> {
    server.set_clock_step(i64::try_from(ALL_RETENTION.as_millis())?);
    let mut allowed = Vec::new();
    for queue in queues {
        for (name, key) in KEY_NAMES.iter().zip(Keys::new(queue).all()) {
            match *name {
                "control" => {
                    allowed.push((key.clone(), "STRLEN", layout::control::STRUCTURE.bytes()));
                }
                "totals" => {
                    allowed.push((key.clone(), "STRLEN", layout::totals::STRUCTURE.bytes()));
                }
                "bell" => allowed.push((key.clone(), "LLEN", 1)),
                _ => {}
            }
        }
    }
    let mut found = Vec::new();
    let mut cursor = "0".to_owned();
    loop {
        let page = server.command(&["SCAN", &cursor, "COUNT", "1000"]);
        let (next, keys): (String, Vec<Vec<u8>>) = redis::from_redis_value(page)?;
        let beside = keys.into_iter().filter(|key| !allowed.iter().any(|(one, ..)| one == key));
        found.extend(beside.map(|key| String::from_utf8_lossy(&key).into_owned()));
        cursor = next;
        if cursor == "0" {
            break;
        }
    }
    for (key, command, most) in allowed {
        let reply = server.command(&[command.as_bytes(), &key]);
        let is_small = |length: i64| usize::try_from(length).is_ok_and(|it| it <= most);
        if !matches!(reply, Reply::Int(length) if is_small(length)) {
            found.push(format!("{} with {reply:?}", String::from_utf8_lossy(&key)));
        }
    }
    Ok(found)
}

/// Keys that a queue without messages may have.
const STAYS: [&str; 8] = [
    "control",
    "totals",
    "history",
    "finished_new",
    "finished_old",
    "journal_new",
    "journal_old",
    "bell",
];
/// Longer than anything is remembered: the history goes after 31 days.
const ALL_RETENTION: Duration = Duration::from_secs(32 * 24 * 3_600);
