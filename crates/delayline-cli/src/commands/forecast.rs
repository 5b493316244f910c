//! `delayline forecast`.

use std::process::ExitCode;

use delayline_admin::DueCounts;
use delayline_json::{self as json, harmless};
use serde_json::json;

use super::window::{Bounds, Window, shown};
use crate::args::{Forecast, Target};
use crate::failure::Failure;
use crate::print::write;

pub(crate) async fn run(target: &Target, args: Forecast) -> Result<ExitCode, Failure> {
    if let Some(bounds) = Bounds::read(&args.window)? {
        return of_window(target, bounds, args.json).await;
    }
    let delays =
        json::forecast_delays(&args.within).map_err(|why| Failure::usage(why).about("--within"))?;
    let queue = target.open_known().await?;
    let forecast = queue.forecast(delays.iter().copied()).await?;
    let name = target.queue()?;
    write(&if args.json {
        json::forecast(name, &delays, &forecast).to_string() + "\n"
    } else {
        table(name, &args.within, &forecast)
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Counts the messages that fall due in a window.
async fn of_window(target: &Target, bounds: Bounds, as_json: bool) -> Result<ExitCode, Failure> {
    let queue = target.open_known().await?;
    let window = bounds.window(&queue).await?;
    let counts = DueCounts::of(&queue, window.from, window.until).await?;
    let name = target.queue()?;
    write(&if as_json {
        let mut due = window.json();
        due["count"] = counts.due.into();
        let DueCounts { ready, before, later, .. } = counts;
        json!({ "queue": name, "ready": ready, "before": before, "due": [due], "later": later })
            .to_string()
            + "\n"
    } else {
        window_table(name, &window, &counts)
    })?;
    if !counts.is_exact {
        eprintln!(
            "delayline: the server's replies took irregularly long, so messages due close to a \
             bound of the window may be counted on its other side"
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn window_table(queue: &str, window: &Window, counts: &DueCounts) -> String {
    let until = window.until.map_or_else(|| "no end".to_owned(), shown);
    let mut rows = vec![("ready", counts.ready), ("before", counts.before)];
    rows.push(("in the window", counts.due));
    rows.extend(window.until.map(|_| ("later", counts.later)));
    let rows = rows.into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
    let head = [("queue", harmless(queue)), ("from", shown(window.from)), ("until", until)];
    let head = head.map(|(name, value)| format!("{name:<16}{value}\n"));
    head.concat() + &bars(rows)
}

fn table(queue: &str, within: &str, forecast: &delayline::admin::Forecast) -> String {
    let mut rows = vec![("ready".to_owned(), forecast.ready)];
    let delays = within.split(',').map(|delay| format!("within {}", delay.trim()));
    rows.extend(delays.zip(json::falling_due(forecast)));
    rows.push(("later".to_owned(), forecast.later));
    format!("{:<16}{}\n", "queue", harmless(queue)) + &bars(rows)
}

/// Counts under their names, with bars.
fn bars(rows: Vec<(String, u64)>) -> String {
    let most = rows.iter().map(|(_, count)| *count).max().unwrap_or_default();
    let mut table = String::new();
    for (name, count) in rows {
        let row = format!("{name:<16}{count:>12}  {}", bar(count, most));
        table += row.trim_end();
        table.push('\n');
    }
    table
}

/// As many signs as the count's share of the greatest one; at least one if there is anything.
fn bar(count: u64, most: u64) -> String {
    let share = u128::from(count) * WIDEST_BAR;
    let signs = share.div_ceil(u128::from(most.max(1)));
    "#".repeat(usize::try_from(signs).unwrap_or_default())
}

const WIDEST_BAR: u128 = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_shares_of_the_greatest_count() {
        let lengths = |counts: [u64; 4], most| counts.map(|count| bar(count, most).len());
        assert_eq!(lengths([0, 1, 500, 1000], 1000), [0, 1, 20, 40]);
        assert_eq!(lengths([0, 1, u64::MAX / 2, u64::MAX], u64::MAX), [0, 1, 20, 40]);
        assert_eq!(bar(0, 0), "");
    }
}
