//! Are the servers, or the directory, suitable, and what could a crash or a failover lose? What
//! `delayline doctor` and the dashboard's page of the server find.

mod alerts;
mod directory;
mod findings;
mod load;
mod schedules;
mod servers;
mod tables;
mod topology;

use std::time::{Duration, Instant, SystemTime};

use delayline::admin::{AclRole, Inspection, Resolution, Survey};
use delayline::backend::{At, Op, QueueBackend};
use delayline::{Connect, Connection, Error};
use delayline_json::hint;
use serde_json::Value;

pub use self::alerts::{ALERTS, examine_alerts};
pub use self::directory::{directory, directory_line, examine_directory};
pub use self::findings::{Finding, Verdict};
use self::findings::{Findings, good_unless};
pub use self::schedules::{SCHEDULE_OVERDUE, examine_schedules};
pub use self::tables::Table;
use crate::is_known;

/// The findings on all servers, and on sentinels.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Examination {
    /// Their answers.
    pub survey: Survey,
    /// The meaning of these answers.
    pub findings: Vec<Finding>,
}

/// Asks every server of the URL, of the cluster or behind the sentinels, replicas included. Changes
/// nothing.
///
/// Each server gets a separate connection and answers a few commands.
///
/// # Cancel safety
///
/// This call changes nothing; its future can be dropped.
///
/// # Errors
///
/// Like [`Connect::survey`]. A server that does not answer is a finding.
pub async fn examine(connect: &Connect) -> Result<Examination, Error> {
    let survey = connect.clone().survey().await?;
    let mut findings = Findings::default();
    servers::check(&survey, &mut findings);
    topology::check(&survey, &mut findings);
    password(connect.exposes_password(), &mut findings);
    Ok(Examination { survey, findings: findings.0 })
}

/// Examines a queue over a separate connection: the user's permissions, whether it opens, how long
/// a call takes, and the server's clock. Changes nothing.
///
/// # Cancel safety
///
/// This call changes nothing; its future can be dropped.
///
/// # Errors
///
/// If the queue has been opened and then cannot be counted. That it cannot be
/// opened, or its server not be reached, is a finding.
pub async fn examine_queue(connect: &Connect, name: &str) -> Result<Vec<Finding>, Error> {
    let mut findings = Findings::default();
    match connect.clone().connect().await {
        Ok(connection) => {
            match connection.inspect(name).await {
                Ok(inspection) => permissions(&inspection, &mut findings),
                Err(error) => findings.add_failure("permissions", &error),
            }
            match connection.backend(name).await {
                Ok(backend) => {
                    queue(&connection, name, &*backend, &mut findings).await?;
                    shards(&connection, name, &mut findings).await;
                }
                Err(error) => findings.add_failure("queue", &error),
            }
        }
        Err(error) => findings.add_failure("connection", &error),
    }
    Ok(findings.0)
}

/// Examines what the load of a queue means for its server, from the queue's own history: when the
/// memory is full at the growth of the last day, the lateness of the last two hours, expired
/// leases, whether a busy queue has a replica, and whether one node is enough. Changes nothing.
///
/// Findings about a server are left out in a cluster, where queues share several. That the queue
/// or its history cannot be read is a finding.
///
/// # Cancel safety
///
/// This call changes nothing; its future can be dropped.
pub async fn examine_load(
    connect: &Connect,
    name: &str,
    examination: &Examination,
) -> Vec<Finding> {
    let mut findings = Findings::default();
    if let Err(error) = load_of(connect, name, &examination.survey, &mut findings).await {
        let advice = hint(error.kind()).unwrap_or("its history is needed");
        findings.add("load", Verdict::Beware, error.to_string(), advice);
    }
    findings.0
}

async fn load_of(
    connect: &Connect,
    name: &str,
    survey: &Survey,
    findings: &mut Findings,
) -> Result<(), Error> {
    let connection = connect.clone().connect().await?;
    let queue = connection.queue::<delayline::Bytes>(name).await?;
    let shards = connection.shards_of(name).await?;
    let stats = queue.stats().await?;
    let minutes = queue.history(Resolution::Minutes).await?;
    let hours = queue.history(Resolution::Hours).await?;
    let load = load::Load { stats: &stats, minutes: &minutes, hours: &hours, shards };
    load::check(survey, &load, findings);
    Ok(())
}

impl Examination {
    /// The servers, and the sentinels if there are any.
    #[must_use]
    pub fn tables(&self) -> Vec<Table> {
        tables::tables(&self.survey)
    }

    /// The servers (`server`), then the sentinels (`sentinel`), as JSON objects. Unknown values
    /// have no member.
    #[must_use]
    pub fn json(&self) -> Vec<Value> {
        tables::json(&self.survey)
    }
}

fn password(is_exposed: bool, findings: &mut Findings) {
    let (verdict, detail) = if is_exposed {
        (Verdict::Beware, "it is sent to another host unencrypted")
    } else {
        (Verdict::Good, "not sent to another host unencrypted")
    };
    let advice = "anyone who can read the network traffic can read it: use rediss:// or a tunnel";
    findings.add("password", verdict, detail, advice);
}

fn permissions(inspection: &Inspection, findings: &mut Findings) {
    let version = inspection.info.get("redis_version");
    let asked = !version.is_some_and(|version| version.starts_with("6."));
    for role in AclRole::ALL {
        let lacks = inspection.denials.iter().filter(|denial| denial.role == role);
        let lacks: Vec<_> =
            lacks.map(|denial| format!("{} on {}", denial.command, denial.key)).collect();
        let what = match role {
            AclRole::Producer => "as producer",
            AclRole::Worker => "as worker",
            AclRole::Relay => "as relay",
            AclRole::Admin => "as admin",
        };
        // A user need not have every role.
        let verdict = if lacks.is_empty() && asked { Verdict::Good } else { Verdict::Beware };
        let detail = match lacks.as_slice() {
            [] if !asked => "unknown: Redis 6 cannot report them".to_owned(),
            [] => "permitted".to_owned(),
            lacks => format!("lacks {}", lacks.join(", ")),
        };
        let advice = "`delayline acl` prints the rules that a role needs";
        findings.add(what, verdict, detail, advice);
    }
}

/// Whether messages are stored where users of the queue do not see them.
async fn shards(connection: &Connection, name: &str, findings: &mut Findings) {
    let found = async {
        Ok::<_, Error>((connection.shards_of(name).await?, connection.stray_messages(name).await?))
    };
    let (detail, strays, advice) = match found.await {
        Ok((None, 0)) => return,
        Ok((None, strays)) => (
            format!("the number of shards is lost, and {strays} messages are in shards"),
            strays,
            "open the queue with its number of shards once, and it is stored again",
        ),
        Ok((Some(number), strays)) => (
            format!("{number} shards, and {strays} messages in none of them"),
            strays,
            "a program opened the queue before it got its shards: start it again, then `delayline \
             import queue` from this queue to itself moves these messages into the shards",
        ),
        Err(error) => {
            let advice = hint(error.kind()).unwrap_or("every node is needed for this");
            return findings.add("shards", Verdict::Beware, error.to_string(), advice);
        }
    };
    findings.add("shards", good_unless(strays > 0), detail, advice);
}

/// Whether the queue exists, how long a call of it takes, and what the server's clock says.
async fn queue(
    connection: &Connection,
    name: &str,
    backend: &dyn QueueBackend,
    findings: &mut Findings,
) -> Result<(), Error> {
    let mut quickest: Option<(Duration, i128)> = None;
    let mut counted = None;
    for _ in 0..5 {
        let (start, before) = (Instant::now(), SystemTime::now());
        let applied = backend.apply(At::Server, &Op::Stats).await?;
        let took = start.elapsed();
        let there = i128::from(applied.at.as_ms());
        let here = before.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default() + took / 2;
        let ahead = there - i128::try_from(here.as_millis()).unwrap_or(0);
        if quickest.is_none_or(|(least, _)| took < least) {
            quickest = Some((took, ahead));
        }
        counted = Some(applied);
    }
    let (took, ahead) = quickest.unwrap_or_default();
    let is_known = match &counted {
        // The check of shards reports this error.
        Some(counted) => is_known(connection, name, counted).await.unwrap_or(true),
        None => true,
    };
    let detail = match is_known {
        true => "it opens",
        false => "it opens, but does not exist yet: its first message creates it",
    };
    findings.add("queue", Verdict::Good, detail, "");
    distance(took, ahead, findings);
    Ok(())
}

/// How far the server is: the round trip `took`, and its clock is `ahead` of ours, in milliseconds.
fn distance(took: Duration, ahead: i128, findings: &mut Findings) {
    let skewed = ahead.unsigned_abs() > took.as_millis() + 1_000;
    let is_far = took > Duration::from_millis(50);
    let advice = "every delivery is late by about this much: run workers closer to the server";
    findings.add("round trip", good_unless(is_far), format!("{took:.1?}"), advice);
    let detail = format!("the server's is {ahead} ms ahead of this machine's");
    let advice = "delays are exact anyway, and so are instants of the server's clock; synchronize \
                  both clocks by NTP";
    findings.add("clock", good_unless(skewed), detail, advice);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdicts(findings: &Findings) -> Vec<Verdict> {
        findings.0.iter().map(|finding| finding.verdict).collect()
    }

    #[test]
    fn what_redis_6_cannot_report_is_unknown() {
        for (version, verdict, detail) in [
            ("6.2.14", Verdict::Beware, "unknown: Redis 6 cannot report them"),
            ("7.0.15", Verdict::Good, "permitted"),
        ] {
            let mut inspection = Inspection::default();
            inspection.info.insert("redis_version".to_owned(), version.to_owned());
            let mut findings = Findings::default();
            permissions(&inspection, &mut findings);
            assert_eq!(verdicts(&findings), [verdict; 4], "{version}");
            assert!(findings.0.iter().all(|finding| finding.detail == detail), "{version}");
        }
    }

    #[test]
    fn a_distant_server_and_a_skewed_clock_are_noted() {
        use Verdict::{Beware, Good};
        for (took_ms, ahead_ms, expected) in [
            (50, 1_050, [Good, Good]),
            (50, -1_050, [Good, Good]),
            (51, 1_051, [Beware, Good]),
            (50, 1_051, [Good, Beware]),
            (50, -1_051, [Good, Beware]),
        ] {
            let mut findings = Findings::default();
            distance(Duration::from_millis(took_ms), ahead_ms, &mut findings);
            assert_eq!(verdicts(&findings), expected, "{took_ms} {ahead_ms}");
        }
    }
}
