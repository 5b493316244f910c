//! `delayline doctor`.

use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use delayline::{At, Inspection, Op, Role};
use serde_json::json;

use crate::args::Target;
use crate::failure::{Failure, SOME_BAD, hint};
use crate::print::{columns, harmless_line, json_line, write};

/// Look whether the server is fit for the queue, and say what to do if it is not
///
/// Changes nothing.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  delayline doctor --queue orders

The exit code is 0 if nothing is bad, 1 if something is, and 3 if the server cannot be reached.")]
pub(crate) struct Doctor {
    /// Print a JSON object a line
    #[arg(long)]
    json: bool,
}

/// What was looked at.
struct Finding {
    what: &'static str,
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

pub(crate) async fn run(target: &Target, args: Doctor) -> Result<ExitCode, Failure> {
    if target.url.starts_with("memory:") {
        return Err(Failure::usage("a queue in memory has no server to look at"));
    }
    let connect = target.connect()?;
    let is_exposed = connect.exposes_password();
    let inspection = connect.inspect().await.map_err(|error| target.not_opened(&error))?;
    let mut findings = server(&inspection);
    findings.push(password(is_exposed));
    findings.extend(permissions(&inspection));
    findings.extend(queue(target).await?);
    if args.json {
        for finding in &findings {
            write(&json_line(&json!({
                "check": finding.what,
                "verdict": finding.verdict.name(),
                "detail": finding.detail,
                "advice": if finding.verdict == Verdict::Good { None } else { Some(finding.advice) },
            })))?;
        }
    } else {
        let row = |finding: &Finding| {
            let advice = if finding.verdict == Verdict::Good { "" } else { finding.advice };
            let detail = harmless_line(&finding.detail);
            vec![finding.what.into(), finding.verdict.name().into(), detail, advice.into()]
        };
        write(&columns(&["CHECK", "VERDICT", "DETAIL", "ADVICE"], findings.iter().map(row)))?;
    }
    let bad = findings.iter().any(|finding| finding.verdict == Verdict::Bad);
    Ok(if bad { ExitCode::from(SOME_BAD) } else { ExitCode::SUCCESS })
}

fn server(inspection: &Inspection) -> Vec<Finding> {
    let info = &inspection.info;
    let field = |name: &str| info.get(name).map_or("", String::as_str);
    if info.is_empty() {
        let detail = "the user may not ask".to_owned();
        let advice = "permit INFO, or look at the server by other means";
        return vec![Finding { what: "server", verdict: Verdict::Beware, detail, advice }];
    }
    let version = field("redis_version");
    let major: u32 = version.split('.').next().and_then(|n| n.parse().ok()).unwrap_or(0);
    let role = field("role");
    let policy = field("maxmemory_policy");
    let limit: u64 = field("maxmemory").parse().unwrap_or(0);
    let used: u64 = field("used_memory").parse().unwrap_or(0);
    let full = limit > 0 && used > limit / 10 * 9;
    let appends = field("aof_enabled") == "1";
    let failing = [
        ("rdb_last_bgsave_status", "snapshot"),
        ("aof_last_write_status", "write to the append-only file"),
        ("aof_last_bgrewrite_status", "rewrite of the append-only file"),
    ]
    .into_iter()
    .find(|(name, _)| !matches!(field(name), "" | "ok"));
    let (clients, most) = (number(field("connected_clients")), number(field("maxclients")));
    vec![
        Finding {
            what: "version",
            verdict: match major {
                7.. => Verdict::Good,
                6 => Verdict::Beware,
                _ => Verdict::Bad,
            },
            detail: format!("{version}, {} bits, {}", field("arch_bits"), field("redis_mode")),
            advice: "on Redis 6 a missing permission can leave half an operation; before 6.0 nothing \
                     works",
        },
        Finding {
            what: "role",
            verdict: good_if(role == "master"),
            detail: role.to_owned(),
            advice: "a replica takes no writes: name its primary",
        },
        Finding {
            what: "eviction",
            verdict: good_if(policy == "noeviction"),
            detail: policy.to_owned(),
            advice: "it may delete messages when memory is full: CONFIG SET maxmemory-policy \
                     noeviction",
        },
        Finding {
            what: "memory",
            verdict: if full { Verdict::Beware } else { Verdict::Good },
            detail: match limit {
                0 => format!("{} MiB used, no limit", used >> 20),
                limit => format!("{} of {} MiB used", used >> 20, limit >> 20),
            },
            advice: "when it is full, messages are refused until workers have made room: raise \
                     maxmemory",
        },
        Finding {
            what: "persistence",
            verdict: if appends { Verdict::Good } else { Verdict::Beware },
            detail: if appends { "append-only file" } else { "snapshots at most" }.to_owned(),
            advice: "a crash of the server loses what came after the last snapshot: CONFIG SET \
                     appendonly yes; appendfsync always loses nothing, everysec a second or two",
        },
        Finding {
            what: "last save",
            verdict: good_if(failing.is_none()),
            detail: match failing {
                None => "good".to_owned(),
                Some((_, what)) => format!("the last {what} failed"),
            },
            advice: "see the server's log and its disk; with stop-writes-on-bgsave-error it refuses \
                     messages",
        },
        Finding {
            what: "clients",
            verdict: if clients > most / 10 * 9 { Verdict::Beware } else { Verdict::Good },
            detail: format!("{clients} of {most}"),
            advice: "a process takes two connections; raise maxclients",
        },
    ]
}

fn password(is_exposed: bool) -> Finding {
    let (verdict, detail) = if is_exposed {
        (Verdict::Beware, "it travels to another host in clear")
    } else {
        (Verdict::Good, "not sent in clear to another host")
    };
    let advice = "whoever can read the network can read it: use rediss://, or a tunnel";
    Finding { what: "password", verdict, detail: detail.to_owned(), advice }
}

fn permissions(inspection: &Inspection) -> Vec<Finding> {
    let version = inspection.info.get("redis_version");
    let asked = !version.is_some_and(|version| version.starts_with("6."));
    let of_role = |role: Role| {
        let lacks = inspection.denials.iter().filter(|denial| denial.role == role);
        let lacks: Vec<_> =
            lacks.map(|denial| format!("{} on {}", denial.command, denial.key)).collect();
        Finding {
            what: match role {
                Role::Producer => "as producer",
                Role::Worker => "as worker",
                Role::Admin => "as admin",
            },
            // A user need not have every role.
            verdict: if lacks.is_empty() && asked { Verdict::Good } else { Verdict::Beware },
            detail: match lacks.as_slice() {
                [] if !asked => "not known: Redis 6 cannot be asked".to_owned(),
                [] => "permitted".to_owned(),
                lacks => format!("lacks {}", lacks.join(", ")),
            },
            advice: "`delayline acl` prints the rules that a role needs",
        }
    };
    Role::ALL.into_iter().map(of_role).collect()
}

/// The queue itself: whether it opens, how long a call takes, and what the server's clock says.
async fn queue(target: &Target) -> Result<Vec<Finding>, Failure> {
    let backend = match target.connect()?.open().await {
        Ok(backend) => backend,
        Err(error) => {
            return Ok(vec![Finding {
                what: "queue",
                verdict: Verdict::Bad,
                detail: error.to_string(),
                advice: error.kind().and_then(hint).unwrap_or("see above"),
            }]);
        }
    };
    let mut quickest: Option<(Duration, i128)> = None;
    for _ in 0..5 {
        let (start, before) = (Instant::now(), SystemTime::now());
        let answer = backend.apply(At::Server, &Op::Stats).await;
        let applied = answer.map_err(|error| Failure::from(delayline::Error::from(error)))?;
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
    Ok(vec![
        Finding {
            what: "queue",
            verdict: Verdict::Good,
            detail: "it opens".to_owned(),
            advice: "",
        },
        Finding {
            what: "round trip",
            verdict: if took > Duration::from_millis(50) { Verdict::Beware } else { Verdict::Good },
            detail: format!("{took:.1?}"),
            advice: "every delivery is late by about that much: come closer to the server",
        },
        Finding {
            what: "clock",
            verdict: if skewed { Verdict::Beware } else { Verdict::Good },
            detail: format!("the server's is {ahead} ms ahead of this machine's"),
            advice: "delays are exact all the same, and so are instants by the server's clock; set \
                     both clocks by NTP",
        },
    ])
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or(0)
}

const fn good_if(good: bool) -> Verdict {
    if good { Verdict::Good } else { Verdict::Bad }
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
