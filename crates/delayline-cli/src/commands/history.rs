//! `delayline history`.

use std::process::ExitCode;

use delayline::admin::Resolution;
use delayline_json::{self as json, Series, harmless};

use crate::args::{History, Target};
use crate::failure::Failure;
use crate::print::write;

pub(crate) async fn run(target: &Target, args: History) -> Result<ExitCode, Failure> {
    let resolution = if args.hours { Resolution::Hours } else { Resolution::Minutes };
    let queue = target.open_known().await?;
    let history = queue.history(resolution).await?;
    let name = target.queue()?;
    write(&if args.json {
        json::history(name, resolution, &history).to_string() + "\n"
    } else {
        plot(name, resolution, &history)
    })?;
    Ok(ExitCode::SUCCESS)
}

fn plot(queue: &str, resolution: Resolution, history: &delayline::admin::History) -> String {
    let span = match resolution {
        Resolution::Minutes => "6 hours, 6 minutes a column",
        _ => "31 days, 12 hours a column",
    };
    let until = history.points.last().map(|point| point.at.to_string()).unwrap_or_default();
    let mut text = format!("{:<12}{}\n", "queue", harmless(queue));
    text += &format!("{:<12}{span}, until {until}\n", "last");
    for series in json::series(resolution, history) {
        text += &row(&series);
    }
    let late = json::lateness_in_words(history);
    text + &format!("{:<12}{}\n", "late by", late.as_deref().unwrap_or("no deliveries"))
}

/// A plot with its sum, or with the present number.
fn row(series: &Series) -> String {
    let most = series.parts.iter().copied().max().unwrap_or_default();
    let plot: String = series.parts.iter().map(|count| sign(*count, most)).collect();
    let told = match series.parts.last() {
        Some(now) if series.is_level => format!("{now} now"),
        _ => {
            let all = series.parts.iter().fold(0_u64, |sum, count| sum.saturating_add(*count));
            format!("{all} in all")
        }
    };
    format!("{:<12}{plot}  {told}, at most {most}\n", series.name)
}

/// A bar from one to eight eighths high for a count's share of the greatest one; low only if there
/// is something.
fn sign(count: u64, most: u64) -> char {
    if count == 0 {
        return '.';
    }
    let eighths = (u128::from(count) * 8).div_ceil(u128::from(most.max(1)));
    let eighths = u32::try_from(eighths).unwrap_or(8).clamp(1, 8);
    char::from_u32(0x2580 + eighths).unwrap_or('#')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_shares_of_the_greatest_count() {
        let signs = |counts: [u64; 5], most| counts.map(|count| sign(count, most));
        let expected = ['.', '\u{2581}', '\u{2584}', '\u{2585}', '\u{2588}'];
        assert_eq!(signs([0, 1, 500, 501, 1_000], 1_000), expected);
        let most = u64::MAX;
        assert_eq!(signs([0, 1, most / 2, most / 2 + 2, most], most), expected);
    }
}
