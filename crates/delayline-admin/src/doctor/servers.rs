//! What each server says of itself.

use std::collections::BTreeMap;

use delayline::ErrorKind;
use delayline::admin::{ServerReport, Survey, TopologyKind};

use super::findings::{Findings, Verdict, good_if, good_unless};

/// The fields of `INFO`, or settings.
pub(super) type Fields = BTreeMap<String, String>;

/// A field, or nothing.
pub(super) fn field<'a>(fields: &'a Fields, name: &str) -> &'a str {
    fields.get(name).map_or("", String::as_str)
}

/// A field that is a number, or 0.
pub(super) fn number(fields: &Fields, name: &str) -> u64 {
    field(fields, name).parse().unwrap_or(0)
}

/// Name and version of the program: `Redis 7.0.15`, `Valkey 9.1.2`.
pub(super) fn version_of(info: &Fields) -> String {
    match (info.get("valkey_version"), info.get("redict_version")) {
        (Some(version), _) => format!("Valkey {version}"),
        (_, Some(version)) => format!("Redict {version}"),
        _ => format!("Redis {}", field(info, "redis_version")),
    }
}

/// How a server keeps its data, in words; whether that is enough.
pub(super) fn persistence(info: &Fields, settings: Option<&Fields>) -> (String, bool) {
    let sync = settings.map(|settings| field(settings, "appendfsync"));
    let save = settings.map(|settings| field(settings, "save"));
    match (field(info, "aof_enabled"), sync, save) {
        ("1", Some(sync), _) => (format!("append-only file, {sync}"), sync != "no"),
        ("1", None, _) => ("append-only file".to_owned(), true),
        (_, _, Some("")) => ("none".to_owned(), false),
        (_, _, Some(_)) => ("snapshots".to_owned(), false),
        _ => ("snapshots at most".to_owned(), false),
    }
}

/// Whether the cluster or the sentinels take the server for a primary.
pub(super) fn is_primary(survey: &Survey, server: &ServerReport) -> bool {
    match survey.kind {
        TopologyKind::Single => {
            survey.servers.first().is_some_and(|first| std::ptr::eq(first, server))
        }
        _ => server.flags.iter().any(|flag| flag == "master"),
    }
}

pub(super) fn check(survey: &Survey, findings: &mut Findings) {
    for server in &survey.servers {
        answers(server, is_primary(survey, server), findings);
    }
    let answering: Vec<_> = survey
        .servers
        .iter()
        .filter_map(|server| Some((server, server.info.as_ref().ok()?)))
        .collect();
    for &(server, info) in &answering {
        version(&server.address, info, findings);
    }
    for &(server, info) in &answering {
        role(survey, server, info, findings);
    }
    for &(server, info) in &answering {
        let policy = field(info, "maxmemory_policy");
        let advice =
            "it may delete messages when memory is full: CONFIG SET maxmemory-policy noeviction";
        findings.add_on(
            &server.address,
            "eviction",
            good_if(policy == "noeviction"),
            policy,
            advice,
        );
    }
    for &(server, info) in &answering {
        memory(&server.address, info, findings);
    }
    for &(server, info) in &answering {
        durability(&server.address, info, server.settings.as_ref().ok(), findings);
    }
    for &(server, info) in &answering {
        last_save(&server.address, info, findings);
    }
    for &(server, info) in &answering {
        clients(&server.address, info, findings);
    }
}

/// Whether it could be asked.
fn answers(server: &ServerReport, is_primary: bool, findings: &mut Findings) {
    let address = &server.address;
    match &server.info {
        Err(error) if error.kind() == &ErrorKind::PermissionDenied => {
            let advice = "permit INFO, or check the server another way";
            findings.add_on(
                address,
                "server",
                Verdict::Beware,
                "the user has no permission",
                advice,
            );
        }
        Err(error) => {
            let verdict = if is_primary { Verdict::Bad } else { Verdict::Beware };
            let advice = "start it, or fix its connection: network, login, --map-address; if it \
                          is gone permanently, CLUSTER FORGET or SENTINEL RESET";
            findings.add_on(address, "server", verdict, error.to_string(), advice);
        }
        Ok(_) => {}
    }
    if server.info.is_ok() && server.settings.is_err() {
        let advice = "what a crash or a failover can lose is only partly known: permit CONFIG GET";
        let detail = "the user has no permission to read them";
        findings.add_on(address, "settings", Verdict::Beware, detail, advice);
    }
    let marks = server.flags.iter().filter(|flag| {
        ["fail", "fail?", "handshake", "noaddr", "s_down", "o_down", "disconnected"]
            .contains(&flag.as_str())
    });
    let marks: Vec<_> = marks.map(String::as_str).collect();
    if !marks.is_empty() {
        let verdict = if is_primary { Verdict::Bad } else { Verdict::Beware };
        let detail = format!("the other nodes mark it as {}", marks.join(", "));
        let advice = "it does not answer the other nodes: check it and its network";
        findings.add_on(address, "server", verdict, detail, advice);
    }
}

fn version(address: &str, info: &Fields, findings: &mut Findings) {
    let major = field(info, "redis_version").split('.').next().and_then(|n| n.parse().ok());
    let verdict = match major.unwrap_or(0_u32) {
        7.. => Verdict::Good,
        6 => Verdict::Beware,
        _ => Verdict::Bad,
    };
    let detail = format!(
        "{}, {} bits, {}",
        version_of(info),
        field(info, "arch_bits"),
        field(info, "redis_mode")
    );
    let advice =
        "on Redis 6 a missing permission can leave half an operation; before 6.0 nothing works";
    findings.add_on(address, "version", verdict, detail, advice);
}

fn role(survey: &Survey, server: &ServerReport, info: &Fields, findings: &mut Findings) {
    let (told, is) = (is_primary(survey, server), field(info, "role") == "master");
    let name = |is_primary: bool| if is_primary { "primary" } else { "replica" };
    let (verdict, detail, advice) = match (survey.kind, told, is) {
        (_, told, is) if told == is => (Verdict::Good, name(is).to_owned(), ""),
        (TopologyKind::Single, true, false) => (
            Verdict::Bad,
            name(is).to_owned(),
            "a replica accepts no writes: connect to its primary",
        ),
        (_, told, is) => (
            Verdict::Beware,
            format!("listed as a {}, but reports itself as a {}", name(told), name(is)),
            "a failover may be under way: check again in a minute",
        ),
    };
    findings.add_on(&server.address, "role", verdict, detail, advice);
}

fn memory(address: &str, info: &Fields, findings: &mut Findings) {
    let (limit, used) = (number(info, "maxmemory"), number(info, "used_memory"));
    let is_full = limit > 0 && used > limit / 10 * 9;
    let detail = match limit {
        0 => "no limit".to_owned(),
        limit if is_full => format!("{} of {} MiB used", used >> 20, limit >> 20),
        limit => format!("below the limit of {} MiB", limit >> 20),
    };
    let advice = "when it is full, messages are refused until workers free memory: raise maxmemory";
    findings.add_on(address, "memory", good_unless(is_full), detail, advice);
}

/// Whether a crash of the server can lose writes that it has answered.
fn durability(address: &str, info: &Fields, settings: Option<&Fields>, findings: &mut Findings) {
    let (detail, is_enough) = persistence(info, settings);
    let advice = match (&detail[..], number(info, "connected_slaves")) {
        ("none", 1..) => {
            "after a restart the primary is empty, and its replicas follow it: CONFIG SET \
             appendonly yes"
        }
        _ => {
            "a crash of the server loses all writes since the last snapshot or sync: CONFIG \
             SET appendonly yes; appendfsync always loses nothing, everysec a second or two"
        }
    };
    findings.add_on(address, "persistence", good_unless(!is_enough), detail, advice);
}

fn clients(address: &str, info: &Fields, findings: &mut Findings) {
    let (clients, most) = (number(info, "connected_clients"), number(info, "maxclients"));
    // Old servers do not tell their limit.
    let is_crowded = most > 0 && clients > most / 10 * 9;
    let detail =
        if is_crowded { format!("{clients} of {most}") } else { "room for more".to_owned() };
    let advice = "a process takes two connections; raise maxclients";
    findings.add_on(address, "clients", good_unless(is_crowded), detail, advice);
}

fn last_save(address: &str, info: &Fields, findings: &mut Findings) {
    let failing = [
        ("rdb_last_bgsave_status", "snapshot"),
        ("aof_last_write_status", "write to the append-only file"),
        ("aof_last_bgrewrite_status", "rewrite of the append-only file"),
    ]
    .into_iter()
    .find(|(name, _)| !matches!(field(info, name), "" | "ok"));
    let detail = match failing {
        None => "good".to_owned(),
        Some((_, what)) => format!("the last {what} failed"),
    };
    let advice =
        "check the server's log and disk; with stop-writes-on-bgsave-error it refuses messages";
    findings.add_on(address, "last save", good_if(failing.is_none()), detail, advice);
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use Verdict::{Bad, Beware, Good};

    use super::*;

    #[test]
    fn each_value_of_a_server_is_good_within_its_bounds() {
        type Check = fn(&str, &Fields, &mut Findings);
        let kept: Check = |address, info, findings| {
            // Settings and `INFO` share a map here.
            durability(address, info, Some(info), findings);
        };
        for (check, info, verdict, words) in [
            (version as Check, "redis_version:7.0.15", Good, "Redis 7.0.15"),
            (version, "redis_version:6.2.14", Beware, "missing permission"),
            (version, "redis_version:5.0.14", Bad, "before 6.0"),
            (version, "", Bad, "before 6.0"),
            (version, "redis_version:7.2.4 valkey_version:9.1.0", Good, "Valkey 9.1.0"),
            (memory, "maxmemory:0 used_memory:9000", Good, "no limit"),
            (memory, "maxmemory:1000 used_memory:900", Good, "below the limit"),
            (memory, "maxmemory:104857600 used_memory:99614720", Beware, "95 of 100 MiB used"),
            (clients, "connected_clients:90 maxclients:100", Good, "room for more"),
            (clients, "connected_clients:91 maxclients:100", Beware, "91 of 100"),
            (clients, "connected_clients:3", Good, "room for more"),
            (last_save, "rdb_last_bgsave_status:ok", Good, "good"),
            (last_save, "rdb_last_bgsave_status:err", Bad, "the last snapshot failed"),
            (last_save, "aof_last_write_status:err", Bad, "the last write to the append-only"),
            (kept, "aof_enabled:1 appendfsync:always", Good, "append-only file, always"),
            (kept, "aof_enabled:1 appendfsync:everysec", Good, "append-only file, everysec"),
            (kept, "aof_enabled:1 appendfsync:no", Beware, "append-only file, no"),
            (kept, "aof_enabled:0 save:3600/1", Beware, "snapshots - a crash"),
            (kept, "aof_enabled:0 save:", Beware, "none - a crash of the server"),
            (kept, "aof_enabled:0 save: connected_slaves:1", Beware, "its replicas follow it"),
        ] {
            let info: Fields = info
                .split_whitespace()
                .map(|line| line.split_once(':').unwrap())
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect();
            let mut findings = Findings::default();
            check("a:1", &info, &mut findings);
            let finding = findings.0.pop().unwrap();
            let said = format!("{} - {}", finding.detail, finding.advice);
            assert!(finding.verdict == verdict && said.contains(words), "{info:?}: {said}");
        }
    }
}
