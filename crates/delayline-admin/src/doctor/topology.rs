//! What the servers are to each other, and what a failover could lose.

use std::collections::BTreeSet;

use delayline::admin::{SentinelView, ServerReport, Survey, TopologyKind};

use super::findings::{Findings, Verdict, good_if, good_unless};
use super::servers::{Fields, field, is_primary, number, version_of};

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
    let primaries: Vec<_> =
        survey.servers.iter().filter(|server| is_primary(survey, server)).collect();
    let answering: Vec<_> = primaries
        .iter()
        .filter_map(|server| Some((&server.address[..], server.info.as_ref().ok()?)))
        .collect();
    let infos = survey.servers.iter().filter_map(|server| server.info.as_ref().ok());
    let never_promoted = infos.filter(|info| field(info, "slave_priority") == "0").count();
    for &(address, info) in &answering {
        replicas(survey.kind, (address, info), never_promoted, findings);
    }
    for &(address, info) in &answering {
        lag(address, info, findings);
    }
    for replica in survey.servers.iter().filter(|server| !is_primary(survey, server)) {
        link(replica, findings);
    }
    for primary in &primaries {
        let Ok(settings) = &primary.settings else { continue };
        let online = primary.info.as_ref().map_or(0, online);
        fewest_replicas(&primary.address, settings, online, findings);
    }
    for primary in &primaries {
        let Ok(info) = &primary.info else { continue };
        failover(survey.kind, (&primary.address, info), primary.settings.as_ref().ok(), findings);
    }
}

/// A primary's entries about its replicas: `ip=10.0.0.2,port=6379,state=online,offset=14,lag=1`.
fn entries(primary: &Fields) -> Vec<&str> {
    let entry = |number: u32| primary.get(&format!("slave{number}"));
    (0..).map_while(entry).map(String::as_str).collect()
}

fn part<'a>(entry: &'a str, name: &str) -> &'a str {
    let parts = entry.split(',').filter_map(|part| part.split_once('='));
    parts.filter(|(key, _)| *key == name).map(|(_, value)| value).next().unwrap_or_default()
}

fn online(primary: &Fields) -> usize {
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
    // A single server is asked like a primary, also if it is a replica.
    let mut others = survey.servers.iter().filter(|it| !std::ptr::eq(*it, replica));
    others.find(|it| is_primary(survey, it) && id(it).as_ref() == Some(&wanted))
}

/// Bytes that a replica had not got when it was asked.
pub(super) fn bytes_behind(survey: &Survey, replica: &ServerReport) -> Option<u64> {
    let primary = primary_of(survey, replica)?.info.as_ref().ok()?;
    let got = number(replica.info.as_ref().ok()?, "slave_repl_offset");
    Some(number(primary, "master_repl_offset").saturating_sub(got))
}

/// Whether a primary has replicas that can take over. `never_promoted` of all servers never may.
fn replicas(
    kind: TopologyKind,
    (address, info): (&str, &Fields),
    never_promoted: usize,
    findings: &mut Findings,
) {
    let (all, online) = (entries(info).len(), online(info));
    let is_never = kind == TopologyKind::Sentinel && never_promoted >= all;
    let (verdict, detail, advice) = match (kind, all) {
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
    findings.add_on(address, "replicas", verdict, detail, advice);
}

fn lag(address: &str, info: &Fields, findings: &mut Findings) {
    let written = number(info, "master_repl_offset");
    for entry in entries(info) {
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
        findings.add_on(address, "lag", good_unless(is_late), detail, advice);
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

fn fewest_replicas(address: &str, settings: &Fields, online: usize, findings: &mut Findings) {
    let (least, all) = (number(settings, "min-replicas-to-write"), online as u64);
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
    findings.add_on(address, "min replicas", verdict, detail, advice);
}

/// What a failover could lose, which is never nothing: servers replicate after they have answered.
fn failover(
    kind: TopologyKind,
    (address, info): (&str, &Fields),
    settings: Option<&Fields>,
    findings: &mut Findings,
) {
    if entries(info).is_empty() {
        return;
    }
    let setting = |name: &str| settings.map_or(0, |settings| number(settings, name));
    let lag = setting("min-replicas-max-lag");
    let is_bounded = setting("min-replicas-to-write") > 0 && lag > 0;
    let lost = "could lose acknowledged calls that are not yet replicated";
    let (verdict, detail) = match kind {
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
    let advice = match kind {
        TopologyKind::Cluster => {
            "min-replicas-to-write bounds it; by hand use CLUSTER FAILOVER without FORCE, which waits for \
             the replica"
        }
        TopologyKind::Sentinel if knows_coordinated(info) => {
            "min-replicas-to-write bounds it; by hand use SENTINEL FAILOVER with COORDINATED, which waits \
             for the replica"
        }
        TopologyKind::Sentinel => {
            "min-replicas-to-write bounds it; by hand, SENTINEL FAILOVER leaves the old primary writable \
             for seconds: CLIENT PAUSE WRITE on it first"
        }
        _ => "promote a replica only once the primary accepts no writes (CLIENT PAUSE WRITE)",
    };
    findings.add_on(address, "failover", verdict, detail, advice);
}

/// Whether the sentinels of such servers can hand over without loss, as from Valkey 9 on.
fn knows_coordinated(primary: &Fields) -> bool {
    let major = primary
        .get("valkey_version")
        .and_then(|version| version.split('.').next()?.parse::<u32>().ok());
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
    let (verdict, advice) = majority(views.len(), survey.sentinels.len(), known, needed);
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

/// Whether enough of the `listed` sentinels answer, if they know of `known` in all, and a failover
/// takes `needed`.
const fn majority(
    answering: usize,
    listed: usize,
    known: usize,
    needed: usize,
) -> (Verdict, &'static str) {
    if answering < needed && listed >= needed {
        let advice = "too few for a failover, or for a client to find the primary: bring them back";
        (Verdict::Bad, advice)
    } else if known < 3 {
        (Verdict::Beware, "three are needed so that one may fail")
    } else if listed < known {
        let advice = "list all of them in the URL: clients trust a majority of those listed";
        (Verdict::Beware, advice)
    } else {
        (Verdict::Good, "")
    }
}

pub(super) fn primary_named(view: &SentinelView) -> String {
    format!("{}:{}", field(&view.service, "ip"), field(&view.service, "port"))
}

const SLOTS: usize = 16_384;
/// Replicas report every second.
const LONGEST_LAG_SECONDS: u64 = 2;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use Verdict::{Bad, Beware, Good};

    use super::*;

    fn fields(text: &str) -> Fields {
        let field = |line: &str| {
            let (name, value) = line.split_once(':').unwrap();
            (name.to_owned(), value.to_owned())
        };
        text.split_whitespace().map(field).collect()
    }

    /// The verdict, and the detail with the advice.
    fn found(check: impl FnOnce(&mut Findings)) -> (Verdict, String) {
        let mut findings = Findings::default();
        check(&mut findings);
        let finding = findings.0.pop().unwrap();
        assert_eq!(finding.servers, ["a:1"]);
        (finding.verdict, format!("{} - {}", finding.detail, finding.advice))
    }

    const ONLINE: &str = "slave0:ip=b,port=2,state=online,offset=90,lag=1";
    const TWO: &str = "slave0:state=online slave1:state=wait_bgsave";

    #[test]
    fn a_primary_needs_replicas_that_can_take_over() {
        use TopologyKind::{Cluster, Sentinel, Single};
        for (kind, info, never_promoted, verdict, words) in [
            (Single, "role:master", 0, Good, "no failover is possible"),
            (Cluster, "role:master", 0, Beware, "CLUSTER REPLICATE"),
            (Sentinel, "role:master", 0, Beware, "find out why it is not connected"),
            (Single, ONLINE, 0, Good, "1 online - "),
            (Single, ONLINE, 1, Good, "1 online - "),
            (Sentinel, ONLINE, 0, Good, "1 online - "),
            (Sentinel, ONLINE, 1, Beware, "replica-priority 0 means never"),
            (Cluster, TWO, 0, Beware, "1 of 2 online"),
        ] {
            let info = fields(info);
            let (is, said) = found(|it| replicas(kind, ("a:1", &info), never_promoted, it));
            assert!(is == verdict && said.contains(words), "{kind:?} {info:?}: {said}");
        }
    }

    #[test]
    fn a_replica_that_responds_late_is_named_with_what_it_lacks() {
        for (lag_s, verdict, words) in [
            (2, Good, "responded within 2 s - "),
            (3, Beware, "b:2 last responded 3 s ago and is 10 bytes behind"),
        ] {
            let entry = format!("slave0:ip=b,port=2,state=online,offset=90,lag={lag_s}");
            let info = fields(&format!("master_repl_offset:100 {entry}"));
            let (is, said) = found(|it| lag("a:1", &info, it));
            assert!(is == verdict && said.contains(words), "{lag_s}: {said}");
        }
    }

    #[test]
    fn writes_that_need_replicas_need_one_to_spare() {
        for (least, online, verdict, words) in [
            (0, 1, Beware, "min-replicas-to-write 0 - "),
            (2, 1, Bad, "2, but 1 online"),
            (1, 1, Beware, "1 within 10 s, with no replica to spare"),
            (1, 2, Good, "min-replicas-to-write 1 within 10 s - "),
        ] {
            let settings =
                fields(&format!("min-replicas-to-write:{least} min-replicas-max-lag:10"));
            let (is, said) = found(|it| fewest_replicas("a:1", &settings, online, it));
            assert!(is == verdict && said.contains(words), "{least} {online}: {said}");
        }
        let mut findings = Findings::default();
        fewest_replicas("a:1", &Fields::new(), 0, &mut findings);
        assert_eq!(findings.0, []);
    }

    #[test]
    fn what_a_failover_loses_depends_on_the_settings() {
        use TopologyKind::{Cluster, Sentinel, Single};
        let bounded = "min-replicas-to-write:1 min-replicas-max-lag:2";
        let endless = "min-replicas-to-write:1 min-replicas-max-lag:0";
        for (kind, version, settings, verdict, words) in [
            (Single, "redis_version:7.0.15", "", Beware, "a manual failover could lose"),
            (Single, "redis_version:7.0.15", bounded, Good, "about 2 s at most"),
            (Sentinel, "redis_version:7.0.15", endless, Beware, "everything after the primary"),
            (Sentinel, "redis_version:7.0.15", "", Beware, "CLIENT PAUSE WRITE on it first"),
            (Sentinel, "valkey_version:8.1.0", "", Beware, "CLIENT PAUSE WRITE on it first"),
            (Sentinel, "valkey_version:9.0.0", "", Beware, "SENTINEL FAILOVER with COORDINATED"),
            (Cluster, "valkey_version:9.0.0", "", Beware, "not yet replicated: the cluster-node"),
            (Cluster, "redis_version:7.0.15", "cluster-node-timeout:5000", Beware, ": 5000 ms if"),
        ] {
            let (info, settings) = (fields(&format!("{ONLINE} {version}")), fields(settings));
            let (is, said) = found(|it| failover(kind, ("a:1", &info), Some(&settings), it));
            assert!(is == verdict && said.contains(words), "{kind:?} {settings:?}: {said}");
        }
        let mut findings = Findings::default();
        failover(Sentinel, ("a:1", &Fields::new()), None, &mut findings);
        assert_eq!(findings.0, []);
    }

    #[test]
    fn most_of_three_sentinels_must_answer_and_all_be_listed() {
        for (answering, listed, known, needed, verdict) in [
            (3, 3, 3, 2, Good),
            (2, 3, 3, 2, Good),
            (1, 3, 3, 2, Bad),
            (1, 1, 1, 1, Beware),
            (2, 2, 2, 2, Beware),
            (2, 2, 3, 2, Beware),
            (1, 1, 3, 2, Beware),
        ] {
            let is = majority(answering, listed, known, needed).0;
            assert_eq!(is, verdict, "{answering} of {listed}, {known} known");
        }
    }
}
