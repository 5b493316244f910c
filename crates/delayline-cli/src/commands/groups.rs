//! `delayline groups`.

use std::cmp::Reverse;
use std::process::ExitCode;

use delayline_admin::GroupCount;
use delayline_json::harmless_line;

use crate::args::{GroupOrder, Groups, Target};
use crate::confirm::number;
use crate::failure::Failure;
use crate::print::{columns, json_line, write};

pub(crate) async fn run(target: &Target, args: Groups) -> Result<ExitCode, Failure> {
    let queue = target.open_known().await?;
    let mut counts = GroupCount::all(&queue).await?;
    counts.sort_by_key(|count| {
        let oldest = (count.oldest_due.is_none(), count.oldest_due);
        let first = match args.order {
            GroupOrder::Waiting => Reverse(count.ready),
            GroupOrder::Leased => Reverse(count.leased),
            GroupOrder::Oldest => Reverse(0),
        };
        (first, oldest, count.group.to_string())
    });
    let shown = usize::try_from(args.limit).unwrap_or(usize::MAX).min(counts.len());
    let (shown, others) = counts.split_at(shown);
    write(&if args.json {
        shown.iter().map(|count| json_line(&count.json())).collect()
    } else if shown.is_empty() {
        String::new()
    } else {
        columns(&["GROUP", "WAITING", "LEASED", "OLDEST DUE"], shown.iter().map(row))
    })?;
    if counts.is_empty() && !args.json {
        eprintln!("no groups");
    }
    if !others.is_empty() {
        eprintln!("{} more; --limit shows them", number(others.len() as u64, "group"));
    }
    Ok(ExitCode::SUCCESS)
}

fn row(count: &GroupCount) -> Vec<String> {
    vec![
        harmless_line(count.group.as_str()),
        count.ready.to_string(),
        count.leased.to_string(),
        count.oldest_due.map_or_else(|| "-".to_owned(), |due| due.to_string()),
    ]
}
