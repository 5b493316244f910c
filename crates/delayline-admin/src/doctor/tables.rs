//! Tables of the servers and the sentinels, one per line.

use delayline::admin::{SentinelReport, ServerReport, Survey, TopologyKind};
use delayline_json::harmless_line;
use serde_json::{Map, Value, json};

use super::servers::{field, is_primary, number, persistence, version_of};
use super::topology::{bytes_behind, primary_named, primary_of};

/// Servers or sentinels, one per row. No cell has a character that could steer a terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Table {
    /// The names of the columns, in capitals.
    pub heads: &'static [&'static str],
    /// The rows, with one cell per column.
    pub rows: Vec<Vec<String>>,
}

/// Returns the table of the servers, and that of the sentinels if there are any.
pub(super) fn tables(survey: &Survey) -> Vec<Table> {
    let mut tables = vec![servers(survey)];
    if survey.kind == TopologyKind::Sentinel {
        tables.push(sentinels(survey));
    }
    tables
}

fn servers(survey: &Survey) -> Table {
    let row = |server: &ServerReport| {
        let shown = |name: &str| {
            let value = fields(survey, server).get(name).cloned().unwrap_or(Value::Null);
            match value {
                Value::Null => "-".to_owned(),
                Value::String(text) => harmless_line(&text),
                other => other.to_string(),
            }
        };
        let behind = match (shown("link").as_str(), shown("bytes_behind")) {
            ("-", _) => "-".to_owned(),
            ("up", bytes) => format!("{bytes} bytes"),
            (link, _) => format!("link {link}"),
        };
        let role = match shown("replica_of").as_str() {
            "-" => shown("role"),
            primary => format!("replica of {primary}"),
        };
        let memory = server.info.as_ref().map_or_else(
            |_| "-".to_owned(),
            |info| format!("{} MiB", number(info, "used_memory") >> 20),
        );
        vec![
            harmless_line(&server.address),
            role,
            shown("version"),
            shown("slots"),
            behind,
            shown("persistence"),
            shown("eviction"),
            memory,
        ]
    };
    let heads =
        &["SERVER", "ROLE", "VERSION", "SLOTS", "BEHIND", "PERSISTENCE", "EVICTION", "MEMORY"];
    Table { heads, rows: survey.servers.iter().map(row).collect() }
}

fn sentinels(survey: &Survey) -> Table {
    let heads = &["SENTINEL", "PRIMARY", "REPLICAS", "OTHERS", "QUORUM", "DOWN AFTER"];
    let row = |sentinel: &SentinelReport| {
        let Ok(view) = &sentinel.view else {
            let mut row = vec![harmless_line(&sentinel.address), "no answer".to_owned()];
            row.resize(heads.len(), String::new());
            return row;
        };
        let shown = |name: &str| harmless_line(field(&view.service, name));
        vec![
            harmless_line(&sentinel.address),
            harmless_line(&primary_named(view)),
            view.replicas.len().to_string(),
            view.others.len().to_string(),
            shown("quorum"),
            format!("{} ms", shown("down-after-milliseconds")),
        ]
    };
    Table { heads, rows: survey.sentinels.iter().map(row).collect() }
}

/// Returns the servers, then the sentinels, as JSON objects.
pub(super) fn json(survey: &Survey) -> Vec<Value> {
    let servers = survey.servers.iter().map(|server| Value::Object(fields(survey, server)));
    let sentinels = survey.sentinels.iter().map(|sentinel| match &sentinel.view {
        Err(error) => json!({ "sentinel": sentinel.address, "error": error.to_string() }),
        Ok(view) => json!({
            "sentinel": sentinel.address,
            "primary": primary_named(view),
            "replicas": view.replicas.len(),
            "others": view.others.len(),
            "quorum": number(&view.service, "quorum"),
            "down_after_ms": number(&view.service, "down-after-milliseconds"),
            "epoch": number(&view.service, "config-epoch"),
        }),
    });
    servers.chain(sentinels).collect()
}

/// Returns the fields of a server. Unknown values have no field.
fn fields(survey: &Survey, server: &ServerReport) -> Map<String, Value> {
    let mut fields = Map::new();
    let mut put = |name: &str, value: Value| drop(fields.insert(name.to_owned(), value));
    put("server", server.address.as_str().into());
    if !server.flags.is_empty() {
        put("flags", server.flags.join(",").into());
    }
    if !server.slots.is_empty() {
        let range = |slots: &std::ops::RangeInclusive<u16>| match (slots.start(), slots.end()) {
            (first, last) if first == last => first.to_string(),
            (first, last) => format!("{first}-{last}"),
        };
        put("slots", server.slots.iter().map(range).collect::<Vec<_>>().join(" ").into());
    }
    let info = match &server.info {
        Ok(info) => info,
        Err(error) => {
            put("role", if is_primary(survey, server) { "primary" } else { "replica" }.into());
            put("error", error.to_string().into());
            return fields;
        }
    };
    put("version", version_of(info).into());
    if field(info, "role") == "slave" {
        put("role", "replica".into());
        put("link", field(info, "master_link_status").into());
        let named = || format!("{}:{}", field(info, "master_host"), field(info, "master_port"));
        let primary = primary_of(survey, server).map(|primary| primary.address.clone());
        put("replica_of", primary.unwrap_or_else(named).into());
        if let Some(bytes) = bytes_behind(survey, server) {
            put("bytes_behind", bytes.into());
        }
    } else {
        put("role", "primary".into());
        put("replicas", number(info, "connected_slaves").into());
    }
    let settings = server.settings.as_ref().ok();
    put("persistence", persistence(info, settings).0.into());
    put("eviction", field(info, "maxmemory_policy").into());
    put("used_memory", number(info, "used_memory").into());
    if let Some(settings) = settings {
        for name in ["min-replicas-to-write", "min-replicas-max-lag", "cluster-node-timeout"] {
            if settings.contains_key(name) {
                put(&name.replace('-', "_"), number(settings, name).into());
            }
        }
    }
    fields
}
