//! `delayline check`.

use std::process::ExitCode;

use delayline::admin::Audit;
use delayline_admin::doctor::{directory, directory_line};
use delayline_json::{finding as finding_of, harmless_line};
use serde_json::{Value, json};

use crate::args::{Check, Target};
use crate::confirm::{confirm, number};
use crate::failure::{Failure, SOME_BAD};
use crate::print::{json_line, write};

pub(crate) async fn run(target: &Target, args: Check) -> Result<ExitCode, Failure> {
    target.queue()?;
    let connection = target.connection().await?;
    let mut queue = target.open_as_stored(&connection).await?;
    // A number of shards would be stored with a queue that does not exist.
    if target.shards.is_some() && target.is_known(&connection, &queue).await? {
        queue = target.open_in(&connection).await?;
    }
    let mut audit = queue.check().await?;
    // A queue that has lost its control record may have messages to be repaired.
    if audit.examined == 0
        && audit.findings.is_empty()
        && !target.is_known(&connection, &queue).await?
    {
        return Err(target.unknown());
    }
    let mut repaired = None;
    if args.repair && !audit.findings.is_empty() {
        if !args.yes {
            confirm(&format!("repair {} faults of the queue", audit.findings.len()), true)?;
        }
        repaired = Some(queue.repair().await?.findings.len());
        // The second audit lists the faults that the first could only count.
        audit = queue.check().await?;
    }
    report(&audit, repaired, args.json)?;
    if let Some(status) = connection.directory_status().await? {
        if args.json {
            write(&json_line(&json!({ "directory": directory(&status) })))?;
        } else {
            eprintln!("directory: {}", harmless_line(&directory_line(&status)));
        }
    }
    Ok(if audit.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(SOME_BAD) })
}

/// A subject, or counts like "3 records, 2 indexed".
fn in_words(detail: &Value) -> String {
    match detail {
        Value::String(subject) => subject.clone(),
        Value::Object(counts) => {
            let counts = counts.iter().map(|(name, count)| format!("{count} {name}"));
            counts.collect::<Vec<_>>().join(", ")
        }
        _ => "unknown to this version".to_owned(),
    }
}

fn report(audit: &Audit, repaired: Option<usize>, as_json: bool) -> Result<(), Failure> {
    for finding in &audit.findings {
        let (what, detail) = finding_of(finding);
        write(&if as_json {
            json_line(&json!({ "finding": what, "detail": detail }))
        } else {
            format!("{}: {}\n", what.replace('_', " "), harmless_line(&in_words(&detail)))
        })?;
    }
    let (examined, findings) = (audit.examined, audit.findings.len());
    if as_json {
        let counts = json!({ "examined": examined, "findings": findings, "repaired": repaired });
        return write(&json_line(&counts));
    }
    let repaired = repaired.map(|repaired| format!(", {repaired} repaired")).unwrap_or_default();
    let findings = number(u64::try_from(findings).unwrap_or(u64::MAX), "fault");
    eprintln!("{} examined{repaired}, {findings}", number(examined, "message"));
    Ok(())
}
