//! `delayline forecast`.

use std::process::ExitCode;

use delayline_json::{self as json, harmless};

use crate::args::{Forecast, Target};
use crate::failure::Failure;
use crate::print::write;

pub(crate) async fn run(target: &Target, args: Forecast) -> Result<ExitCode, Failure> {
    let delays = json::forecast_delays(&args.within).map_err(Failure::usage)?;
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

fn table(queue: &str, within: &str, forecast: &delayline::admin::Forecast) -> String {
    let mut rows = vec![("ready".to_owned(), forecast.ready)];
    let delays = within.split(',').map(|delay| format!("within {}", delay.trim()));
    rows.extend(delays.zip(json::falling_due(forecast)));
    rows.push(("later".to_owned(), forecast.later));
    let most = rows.iter().map(|(_, count)| *count).max().unwrap_or_default();
    let mut table = format!("{:<16}{}\n", "queue", harmless(queue));
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
