//! Are the servers suitable, and what could a crash or a failover lose? What `delayline doctor` and
//! the dashboard's page of the server find.

mod servers;
mod tables;
mod topology;

use std::time::{Duration, Instant, SystemTime};

use delayline::admin::{AclRole, Inspection, Survey};
use delayline::backend::{At, Op, QueueBackend};
use delayline::{Connect, Error};
use serde_json::{Value, json};

pub use self::tables::Table;
use crate::{harmless_line, hint};

/// What was found on all servers, and on sentinels.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Examination {
    /// What they have answered.
    pub survey: Survey,
    /// What that means.
    pub findings: Vec<Finding>,
}

/// What one check has found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// What was looked at, in a word or two.
    pub check: &'static str,
    /// Where: addresses. Empty if it is about all of them, or about none.
    pub servers: Vec<String>,
    /// Whether that is good.
    pub verdict: Verdict,
    /// What was found. May have text that a server wrote.
    pub detail: String,
    /// What to do about it. Empty if it is good.
    pub advice: &'static str,
}

/// How good something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Nothing has to be done.
    Good,
    /// It can cost something.
    Beware,
    /// The queues do not work, or may lose messages.
    Bad,
}

/// Asks every server of the URL, of the cluster or behind the sentinels, replicas included. Changes
/// nothing.
///
/// Each server gets a connection of its own and answers a few commands.
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

/// Looks at a queue over a connection of its own: what the user may do with it, whether it opens, how
/// long a call takes, and what the server's clock says. Changes nothing.
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
                Ok(backend) => queue(&*backend, &mut findings).await?,
                Err(error) => findings.add_failure("queue", &error),
            }
        }
        Err(error) => findings.add_failure("connection", &error),
    }
    Ok(findings.0)
}

impl Examination {
    /// The servers, and the sentinels if there are any.
    #[must_use]
    pub fn tables(&self) -> Vec<Table> {
        tables::tables(&self.survey)
    }

    /// The servers (`server`), then the sentinels (`sentinel`), as JSON objects. What is not known
    /// has no member.
    #[must_use]
    pub fn json(&self) -> Vec<Value> {
        tables::json(&self.survey)
    }
}

impl Finding {
    /// What was found and where, in one line without a character that could steer a terminal.
    #[must_use]
    pub fn line(&self) -> String {
        harmless_line(&match &self.servers[..] {
            [] => self.detail.clone(),
            servers => format!("{} ({})", self.detail, servers.join(", ")),
        })
    }

    /// As a JSON object.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "check": self.check,
            "servers": self.servers,
            "verdict": self.verdict.name(),
            "detail": self.detail,
            "advice": Some(self.advice).filter(|_| self.verdict != Verdict::Good),
        })
    }
}

impl Verdict {
    /// `good`, `beware` or `bad`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Beware => "beware",
            Self::Bad => "bad",
        }
    }
}

/// What was found so far.
#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    /// Adds what was found as a whole.
    fn add(
        &mut self,
        check: &'static str,
        verdict: Verdict,
        detail: impl Into<String>,
        advice: &'static str,
    ) {
        let (detail, advice) = (detail.into(), advised(verdict, advice));
        self.0.push(Finding { check, servers: Vec::new(), verdict, detail, advice });
    }

    /// Adds why something could not be looked at.
    fn add_failure(&mut self, check: &'static str, error: &Error) {
        let advice = hint(error.kind()).unwrap_or("see above");
        self.add(check, Verdict::Bad, error.to_string(), advice);
    }

    /// Adds what was found on one server, together with others on which the same was found.
    fn add_on(
        &mut self,
        server: &str,
        check: &'static str,
        verdict: Verdict,
        detail: impl Into<String>,
        advice: &'static str,
    ) {
        let (detail, advice) = (detail.into(), advised(verdict, advice));
        let is_same = |it: &&mut Finding| {
            !it.servers.is_empty()
                && (it.check, it.verdict, it.advice) == (check, verdict, advice)
                && it.detail == detail
        };
        match self.0.iter_mut().find(is_same) {
            Some(finding) => finding.servers.push(server.to_owned()),
            None => {
                let servers = vec![server.to_owned()];
                self.0.push(Finding { check, servers, verdict, detail, advice });
            }
        }
    }
}

/// What is good needs no advice.
fn advised(verdict: Verdict, advice: &'static str) -> &'static str {
    if verdict == Verdict::Good { "" } else { advice }
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

/// How long a call of the queue takes, and what the server's clock says.
async fn queue(backend: &dyn QueueBackend, findings: &mut Findings) -> Result<(), Error> {
    let mut quickest: Option<(Duration, i128)> = None;
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
    }
    let (took, ahead) = quickest.unwrap_or_default();
    let skewed = ahead.unsigned_abs() > took.as_millis() + 1_000;
    findings.add("queue", Verdict::Good, "it opens", "");
    let is_far = took > Duration::from_millis(50);
    let advice = "every delivery is late by about this much: run workers closer to the server";
    findings.add("round trip", good_unless(is_far), format!("{took:.1?}"), advice);
    let detail = format!("the server's is {ahead} ms ahead of this machine's");
    let advice = "delays are exact all the same, and so are instants by the server's clock; set both \
                  clocks by NTP";
    findings.add("clock", good_unless(skewed), detail, advice);
    Ok(())
}

const fn good_if(good: bool) -> Verdict {
    if good { Verdict::Good } else { Verdict::Bad }
}

const fn good_unless(dubious: bool) -> Verdict {
    if dubious { Verdict::Beware } else { Verdict::Good }
}
