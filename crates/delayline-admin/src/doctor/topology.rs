//! What the servers are to each other, and what a failover could lose.

use std::collections::BTreeSet;

use delayline::admin::{SentinelView, ServerReport, Survey, TopologyKind};

use super::findings::{Findings, Verdict, good_if, good_unless};
use super::servers::{field, is_primary, number, version_of};

pub(super) fn check(survey: &Survey, findings: &mut Findings) {
    match survey.kind {
        TopologyKind::Cluster => cluster(survey, findings),
        TopologyKind::Sentinel => sentinels(survey, findings),
        _ => {}
    }
    let versions: BTreeSet<_> =
        survey.servers.iter().flat_map(|server| &server.info).map(version_of).collect();
    if versions.len() > 1 {
        let versions: Vec<_> = versions.into_iter().collect();
        let advice = "an older replica may not understand a newer primary: finish the upgrade, replicas \
                      first";
        findings.add("versions", Verdict::Beware, versions.join(", "), advice);
    }
    let primaries = || survey.servers.iter().filter(|server| is_primary(survey, server));
    for primary in primaries() {
        replicas(survey, primary, findings);
    }
    for primary in primaries() {
        lag(primary, findings);
    }
    for replica in survey.servers.iter().filter(|server| !is_primary(survey, server)) {
        link(replica, findings);
    }
    for primary in primaries() {
        fewest_replicas(primary, findings);
    }
    for primary in primaries() {
        failover(survey, primary, findings);
    }
}

/// A primary's entries about its replicas: `ip=10.0.0.2,port=6379,state=online,offset=14,lag=1`.
fn entries(primary: &ServerReport) -> Vec<&str> {
    let entry = |number: u32| primary.info.as_ref().ok()?.get(&format!("slave{number}"));
    (0..).map_while(entry).map(String::as_str).collect()
}

fn part<'a>(entry: &'a str, name: &str) -> &'a str {
    let parts = entry.split(',').filter_map(|part| part.split_once('='));
    parts.filter(|(key, _)| *key == name).map(|(_, value)| value).next().unwrap_or_default()
}

fn online(primary: &ServerReport) -> usize {
    entries(primary).iter().filter(|entry| part(entry, "state") == "online").count()
}

/// The replica's primary, which has the same replication id.
pub(super) fn primary_of<'a>(
    survey: &'a Survey,
    replica: &ServerReport,
) -> Option<&'a ServerReport> {
    let id = |server: &ServerReport| {
        server.info.as_ref().ok().map(|info| field(info, "master_replid").to_owned())
    };
    let wanted = id(replica).filter(|id| !id.is_empty())?;
    survey.servers.iter().find(|it| is_primary(survey, it) && id(it).as_ref() == Some(&wanted))
}

/// Bytes that a replica had not got when it was asked.
pub(super) fn bytes_behind(survey: &Survey, replica: &ServerReport) -> Option<u64> {
    let primary = primary_of(survey, replica)?.info.as_ref().ok()?;
    let got = number(replica.info.as_ref().ok()?, "slave_repl_offset");
    Some(number(primary, "master_repl_offset").saturating_sub(got))
}

fn replicas(survey: &Survey, primary: &ServerReport, findings: &mut Findings) {
    if primary.info.is_err() {
        return;
    }
    let (all, online) = (entries(primary).len(), online(primary));
    let never_promoted = |server: &&ServerReport| {
        let info = server.info.as_ref().ok();
        info.is_some_and(|info| info.get("slave_priority").is_some_and(|it| it == "0"))
    };
    let is_never = survey.kind == TopologyKind::Sentinel
        && survey.servers.iter().filter(never_promoted).count() >= all;
    let (verdict, detail, advice) = match (survey.kind, all) {
        (TopologyKind::Single, 0) => {
            (Verdict::Good, "none, so no failover is possible".to_owned(), "")
        }
        (TopologyKind::Cluster, 0) => (
            Verdict::Beware,
            "none".to_owned(),
            "its queues are unavailable until it is back: add a replica (CLUSTER REPLICATE)",
        ),
        (_, 0) => (
            Verdict::Beware,
            "none".to_owned(),
            "no replica can take over: start one, or find out why it is not connected",
        ),
        _ if online < all => (
            Verdict::Beware,
            format!("{online} of {all} online"),
            "a replica that is still synchronizing cannot take over: check both servers' logs",
        ),
        _ if is_never => (
            Verdict::Beware,
            "none of them can be promoted".to_owned(),
            "replica-priority 0 means never: set it higher on one of them",
        ),
        _ => (Verdict::Good, format!("{online} online"), ""),
    };
    findings.add_on(&primary.address, "replicas", verdict, detail, advice);
}

fn lag(primary: &ServerReport, findings: &mut Findings) {
    let Ok(info) = &primary.info else { return };
    let written = number(info, "master_repl_offset");
    for entry in entries(primary) {
        let seconds: u64 = part(entry, "lag").parse().unwrap_or(0);
        let got: u64 = part(entry, "offset").parse().unwrap_or(0);
        let is_late = seconds > LONGEST_LAG_SECONDS;
        let detail = if is_late {
            let replica = format!("{}:{}", part(entry, "ip"), part(entry, "port"));
            let bytes = written.saturating_sub(got);
            format!("{replica} last responded {seconds} s ago and is {bytes} bytes behind")
        } else {
            format!("responded within {LONGEST_LAG_SECONDS} s")
        };
        let advice = "a failover to it loses these bytes: check its load, disk and network";
        findings.add_on(&primary.address, "lag", good_unless(is_late), detail, advice);
    }
}

/// The replica's own view of its way to the primary.
fn link(replica: &ServerReport, findings: &mut Findings) {
    let Ok(info) = &replica.info else { return };
    if field(info, "role") == "slave" && field(info, "master_link_status") != "up" {
        let seconds = field(info, "master_link_down_since_seconds");
        let detail = format!("its link to the primary has been down for {seconds} s");
        let advice = "a failover to it loses all writes since then: check its log, masterauth, masteruser, \
             network";
        findings.add_on(&replica.address, "lag", Verdict::Beware, detail, advice);
    }
}

fn fewest_replicas(primary: &ServerReport, findings: &mut Findings) {
    let Ok(settings) = &primary.settings else { return };
    let (least, all) = (number(settings, "min-replicas-to-write"), online(primary) as u64);
    let lag = number(settings, "min-replicas-max-lag");
    let (verdict, detail, advice) = match (least, all) {
        (0, 0) => return,
        (0, _) => (
            Verdict::Beware,
            "min-replicas-to-write 0".to_owned(),
            "a primary that has lost its replicas accepts writes, and a failover loses them all: \
             CONFIG SET min-replicas-to-write 1 and min-replicas-max-lag 2",
        ),
        (least, all) if all < least => (
            Verdict::Bad,
            format!("min-replicas-to-write {least}, but {all} online"),
            "it refuses messages: bring the replicas back, or lower the setting",
        ),
        (least, all) if all == least => (
            Verdict::Beware,
            format!("min-replicas-to-write {least} within {lag} s, with no replica to spare"),
            "safe, but each restart of a replica stops the queues: add one more",
        ),
        _ => (Verdict::Good, format!("min-replicas-to-write {least} within {lag} s"), ""),
    };
    findings.add_on(&primary.address, "min replicas", verdict, detail, advice);
}

/// What a failover could lose, which is never nothing: servers replicate after they have answered.
fn failover(survey: &Survey, primary: &ServerReport, findings: &mut Findings) {
    if entries(primary).is_empty() {
        return;
    }
    let settings = primary.settings.as_ref().ok();
    let setting = |name: &str| settings.map_or(0, |settings| number(settings, name));
    let lag = setting("min-replicas-max-lag");
    let is_bounded = setting("min-replicas-to-write") > 0 && lag > 0;
    let lost = "could lose acknowledged calls that are not yet replicated";
    let (verdict, detail) = match survey.kind {
        _ if is_bounded => (Verdict::Good, format!("{lost}: about {lag} s at most")),
        TopologyKind::Cluster if setting("cluster-node-timeout") > 0 => {
            let ms = setting("cluster-node-timeout");
            (Verdict::Beware, format!("{lost}: {ms} ms if the primary is cut off"))
        }
        TopologyKind::Cluster => (Verdict::Beware, format!("{lost}: the cluster-node-timeout")),
        TopologyKind::Sentinel => {
            (Verdict::Beware, format!("{lost}: everything after the primary is cut off"))
        }
        _ => (Verdict::Beware, format!("a manual failover {lost}")),
    };
    let advice = match survey.kind {
        TopologyKind::Cluster => {
            "min-replicas-to-write bounds it; by hand use CLUSTER FAILOVER without FORCE, which waits for \
             the replica"
        }
        TopologyKind::Sentinel if knows_coordinated(primary) => {
            "min-replicas-to-write bounds it; by hand use SENTINEL FAILOVER with COORDINATED, which waits \
             for the replica"
        }
        TopologyKind::Sentinel => {
            "min-replicas-to-write bounds it; by hand, SENTINEL FAILOVER leaves the old primary writable \
             for seconds: CLIENT PAUSE WRITE on it first"
        }
        _ => "promote a replica only once the primary accepts no writes (CLIENT PAUSE WRITE)",
    };
    findings.add_on(&primary.address, "failover", verdict, detail, advice);
}

/// Whether the sentinels of such servers can hand over without loss, as from Valkey 9 on.
fn knows_coordinated(primary: &ServerReport) -> bool {
    let version = primary.info.as_ref().ok().and_then(|info| info.get("valkey_version"));
    let major = version.and_then(|version| version.split('.').next()?.parse::<u32>().ok());
    major.is_some_and(|major| major >= 9)
}

fn cluster(survey: &Survey, findings: &mut Findings) {
    let slots: usize =
        survey.servers.iter().flat_map(|it| &it.slots).map(ExactSizeIterator::len).sum();
    let detail = match SLOTS.saturating_sub(slots) {
        0 => "all served".to_owned(),
        missing => format!("{missing} of {SLOTS} are not served"),
    };
    let advice = "queues in them are refused: bring their nodes back, or assign the slots to \
                  other nodes";
    findings.add("slots", good_if(slots == SLOTS), detail, advice);
    for server in survey.servers.iter().filter(|server| server.slots_in_motion > 0) {
        let detail = format!("{} being moved", server.slots_in_motion);
        let advice =
            "queues in them are unavailable until CLUSTER SETSLOT ... NODE: finish the move";
        findings.add_on(&server.address, "slots", Verdict::Beware, detail, advice);
    }
    for server in &survey.servers {
        let Ok(info) = &server.cluster else { continue };
        let state = field(info, "cluster_state");
        let advice = "a node that lacks most of the others, or a slot, refuses calls: see CLUSTER NODES \
                      there";
        findings.add_on(&server.address, "cluster state", good_if(state == "ok"), state, advice);
    }
    let primaries = survey.servers.iter().filter(|server| !server.slots.is_empty()).count();
    let advice = "the primaries elect a new one: with fewer than three, none may fail";
    let detail = format!("{primaries} primaries vote");
    findings.add("election", good_unless(primaries < 3), detail, advice);
    for server in &survey.servers {
        let Ok(settings) = &server.settings else { continue };
        let is_required = field(settings, "cluster-require-full-coverage") == "yes";
        let detail = if is_required { "required" } else { "not required" };
        let advice =
            "if one slot is lost, all queues stop: CONFIG SET cluster-require-full-coverage no";
        let verdict = good_unless(is_required);
        findings.add_on(&server.address, "full coverage", verdict, detail, advice);
    }
    for server in &survey.servers {
        let Ok(settings) = &server.settings else { continue };
        let ms = field(settings, "cluster-node-timeout");
        let detail = format!("begins after {ms} ms of silence");
        findings.add_on(&server.address, "detection", Verdict::Good, detail, "");
    }
}

fn sentinels(survey: &Survey, findings: &mut Findings) {
    for sentinel in &survey.sentinels {
        if let Err(error) = &sentinel.view {
            let advice =
                "start it, or fix the connection to it: network, DELAYLINE_SENTINEL_PASSWORD";
            findings.add_on(
                &sentinel.address,
                "sentinels",
                Verdict::Beware,
                error.to_string(),
                advice,
            );
        }
    }
    let views: Vec<_> = survey
        .sentinels
        .iter()
        .filter_map(|sentinel| Some((&sentinel.address, sentinel.view.as_ref().ok()?)))
        .collect();
    let known = views.iter().map(|(_, view)| view.others.len() + 1).max().unwrap_or(0);
    let quorum = views.iter().map(|(_, view)| number(&view.service, "quorum")).max().unwrap_or(0);
    let needed = usize::try_from(quorum).unwrap_or(usize::MAX).max(known / 2 + 1);
    let (verdict, advice) = match views.len() {
        answer if answer < needed && survey.sentinels.len() >= needed => (
            Verdict::Bad,
            "too few for a failover, or for a client to find the primary: bring them back",
        ),
        _ if known < 3 => (Verdict::Beware, "three are needed so that one may fail"),
        _ if survey.sentinels.len() < known => (
            Verdict::Beware,
            "list all of them in the URL: clients trust a majority of those listed",
        ),
        _ => (Verdict::Good, ""),
    };
    let detail = format!(
        "{} of {} in the URL answer, {known} know of each other, a failover takes {needed}",
        views.len(),
        survey.sentinels.len()
    );
    findings.add("sentinels", verdict, detail, advice);
    for (address, view) in &views {
        if view.others.len() + 1 < known {
            let detail =
                format!("knows {} others, another sentinel knows {}", view.others.len(), known - 1);
            let advice = "it may be cut off or new: check again, and check its network";
            findings.add_on(address, "sentinels", Verdict::Beware, detail, advice);
        }
    }
    let named: BTreeSet<_> = views.iter().map(|(_, view)| primary_named(view)).collect();
    let detail = named.iter().cloned().collect::<Vec<_>>().join(", ");
    let advice = "they disagree: a failover is under way, or one of them is cut off: check again";
    findings.add("primary", good_if(named.len() == 1), detail, advice);
    for (address, view) in &views {
        let ms = field(&view.service, "down-after-milliseconds");
        let detail = format!("begins after {ms} ms of silence");
        findings.add_on(address, "detection", Verdict::Good, detail, "");
    }
}

pub(super) fn primary_named(view: &SentinelView) -> String {
    format!("{}:{}", field(&view.service, "ip"), field(&view.service, "port"))
}

const SLOTS: usize = 16_384;
/// Replicas report every second.
const LONGEST_LAG_SECONDS: u64 = 2;
