//! `delayline doctor`.

mod servers;
mod tables;
mod topology;

use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use delayline::backend::{At, Op, QueueBackend};
use delayline::{Error, Inspection, Role};
use delayline_json::harmless_line;
use serde_json::json;

use crate::args::Target;
use crate::failure::{Failure, SOME_BAD, hint};
use crate::print::{columns, json_line, write};

/// Check whether the servers are suitable, and suggest fixes
///
/// Asks every server of the URL, of the cluster or behind the sentinels, replicas included, and
/// reports what a crash or a failover could lose. Changes nothing.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  delayline doctor --queue orders

A user who may also run CONFIG GET and CLUSTER NODES gets more details. Servers that cannot be
reached, or that refuse to answer, are reported.

The exit code is 0 if nothing is bad, 1 if something is, and 3 if no server can be reached.")]
pub(crate) struct Doctor {
    /// Print a JSON object per check, per server (`server`) and per sentinel (`sentinel`)
    #[arg(long)]
    json: bool,
}

/// All that was looked at.
#[derive(Default)]
struct Findings(Vec<Finding>);

/// What was looked at.
struct Finding {
    what: &'static str,
    /// Where: addresses. Empty if it is about all of them, or about none.
    servers: Vec<String>,
    verdict: Verdict,
    detail: String,
    advice: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Good,
    Beware,
    Bad,
}

impl Findings {
    /// Adds what was found as a whole.
    fn add(
        &mut self,
        what: &'static str,
        verdict: Verdict,
        detail: impl Into<String>,
        advice: &'static str,
    ) {
        let detail = detail.into();
        self.0.push(Finding { what, servers: Vec::new(), verdict, detail, advice });
    }

    /// Adds why something could not be looked at.
    fn add_failure(&mut self, what: &'static str, error: &Error) {
        let advice = error.kind().and_then(hint).unwrap_or("see above");
        self.add(what, Verdict::Bad, error.to_string(), advice);
    }

    /// Adds what was found on one server, together with others on which the same was found.
    fn add_on(
        &mut self,
        server: &str,
        what: &'static str,
        verdict: Verdict,
        detail: impl Into<String>,
        advice: &'static str,
    ) {
        let detail = detail.into();
        let is_same = |it: &&mut Finding| {
            !it.servers.is_empty()
                && (it.what, it.verdict, it.advice) == (what, verdict, advice)
                && it.detail == detail
        };
        match self.0.iter_mut().find(is_same) {
            Some(finding) => finding.servers.push(server.to_owned()),
            None => {
                let servers = vec![server.to_owned()];
                self.0.push(Finding { what, servers, verdict, detail, advice });
            }
        }
    }
}

pub(crate) async fn run(target: &Target, args: Doctor) -> Result<ExitCode, Failure> {
    if target.url.starts_with("memory:") {
        return Err(Failure::usage("a queue in memory has no server to check"));
    }
    let name = target.queue()?;
    let connect = target.connect()?;
    let is_exposed = connect.exposes_password();
    let survey = connect.clone().survey().await.map_err(|error| target.not_opened(&error))?;
    let mut findings = Findings::default();
    servers::check(&survey, &mut findings);
    topology::check(&survey, &mut findings);
    password(is_exposed, &mut findings);
    match connect.connect().await {
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
    if args.json {
        tables::json(&survey)?;
    } else {
        write(&tables::text(&survey))?;
    }
    findings.print(args.json)?;
    let bad = findings.0.iter().any(|finding| finding.verdict == Verdict::Bad);
    Ok(if bad { ExitCode::from(SOME_BAD) } else { ExitCode::SUCCESS })
}

impl Findings {
    fn print(&self, as_json: bool) -> Result<(), Failure> {
        let advice = |finding: &Finding| match finding.verdict {
            Verdict::Good => None,
            Verdict::Beware | Verdict::Bad => Some(finding.advice),
        };
        if !as_json {
            let row = |finding: &Finding| {
                let detail = match &finding.servers[..] {
                    [] => finding.detail.clone(),
                    servers => format!("{} ({})", finding.detail, servers.join(", ")),
                };
                let (verdict, advice) = (finding.verdict.name(), advice(finding).unwrap_or(""));
                vec![finding.what.into(), verdict.into(), harmless_line(&detail), advice.into()]
            };
            return write(&columns(
                &["CHECK", "VERDICT", "DETAIL", "ADVICE"],
                self.0.iter().map(row),
            ));
        }
        for finding in &self.0 {
            write(&json_line(&json!({
                "check": finding.what,
                "servers": finding.servers,
                "verdict": finding.verdict.name(),
                "detail": finding.detail,
                "advice": advice(finding),
            })))?;
        }
        Ok(())
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
    for role in Role::ALL {
        let lacks = inspection.denials.iter().filter(|denial| denial.role == role);
        let lacks: Vec<_> =
            lacks.map(|denial| format!("{} on {}", denial.command, denial.key)).collect();
        let what = match role {
            Role::Producer => "as producer",
            Role::Worker => "as worker",
            Role::Relay => "as relay",
            Role::Admin => "as admin",
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
async fn queue(backend: &dyn QueueBackend, findings: &mut Findings) -> Result<(), Failure> {
    let mut quickest: Option<(Duration, i128)> = None;
    for _ in 0..5 {
        let (start, before) = (Instant::now(), SystemTime::now());
        let answer = backend.apply(At::Server, &Op::Stats).await;
        let applied = answer.map_err(|error| Failure::from(Error::from(error)))?;
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

impl Verdict {
    const fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Beware => "beware",
            Self::Bad => "bad",
        }
    }
}
