//! `delayline doctor`.

mod prometheus;

use std::process::ExitCode;

use delayline::Error;
use delayline::admin::QueueName;
use delayline_admin::doctor::{
    Examination, Finding, Verdict, examine, examine_directory, examine_load, examine_queue,
    examine_schedules,
};

use self::prometheus::Prometheus;
use crate::args::{Doctor, Target};
use crate::failure::{Failure, SOME_BAD};
use crate::print::{columns, json_line, write};

pub(crate) async fn run(target: &Target, args: Doctor) -> Result<ExitCode, Failure> {
    let prometheus = args.prometheus.as_deref().map(Prometheus::new).transpose()?;
    args.schedules.parse::<QueueName>().map_err(Error::from)?;
    if target.is_directory() {
        return of_directory(target, prometheus, &args).await;
    }
    if !target.has_server() {
        return Err(Failure::usage("there is no server to check: the queue is in this process"));
    }
    let name = target.queue()?;
    let connect = target.connect()?;
    let mut found = examine(&connect).await.map_err(|error| target.not_opened(&error))?;
    let of_queue = examine_queue(&connect, name).await?;
    let opens = of_queue.iter().any(|it| it.check == "queue" && it.verdict == Verdict::Good);
    found.findings.extend(of_queue);
    // Why a queue cannot be opened is a finding already.
    if opens {
        let load = examine_load(&connect, name, &found).await;
        found.findings.extend(load);
        let connection = connect.connect().await.map_err(|error| target.not_opened(&error))?;
        found.findings.extend(examine_schedules(&connection, &args.schedules).await);
    }
    if let Some(prometheus) = prometheus {
        found.findings.extend(prometheus.examine().await);
    }
    let text = if args.json { in_json(&found) } else { in_tables(&found) };
    write(&text)?;
    Ok(exit_code(&found.findings))
}

async fn of_directory(
    target: &Target,
    prometheus: Option<Prometheus>,
    args: &Doctor,
) -> Result<ExitCode, Failure> {
    let name = target.queue.is_some().then(|| target.queue()).transpose()?;
    let connect = target.connect()?;
    target.refuse_new(&connect)?;
    let connection = connect.connect().await.map_err(|error| target.not_opened(&error))?;
    if let Some(name) = name
        && !connection.queues().await?.iter().any(|queue| queue.as_str() == name)
    {
        return Err(target.unknown());
    }
    let mut findings = examine_directory(&connection, name).await?;
    findings.extend(examine_schedules(&connection, &args.schedules).await);
    if let Some(prometheus) = prometheus {
        findings.extend(prometheus.examine().await);
    }
    write(&if args.json {
        findings.iter().map(|finding| json_line(&finding.json())).collect()
    } else {
        table(&findings)
    })?;
    Ok(exit_code(&findings))
}

fn exit_code(findings: &[Finding]) -> ExitCode {
    let bad = findings.iter().any(|finding| finding.verdict == Verdict::Bad);
    if bad { ExitCode::from(SOME_BAD) } else { ExitCode::SUCCESS }
}

fn in_json(found: &Examination) -> String {
    let findings = found.findings.iter().map(Finding::json);
    found.json().into_iter().chain(findings).map(|line| json_line(&line)).collect()
}

fn in_tables(found: &Examination) -> String {
    let tables = found.tables().into_iter();
    let tables: String =
        tables.map(|table| columns(table.heads, table.rows.into_iter()) + "\n").collect();
    tables + &table(&found.findings)
}

fn table(findings: &[Finding]) -> String {
    let row = |finding: &Finding| {
        let Finding { check, verdict, advice, .. } = finding;
        [check, verdict.name(), &finding.line(), advice].map(str::to_owned).to_vec()
    };
    columns(&["CHECK", "VERDICT", "DETAIL", "ADVICE"], findings.iter().map(row))
}
