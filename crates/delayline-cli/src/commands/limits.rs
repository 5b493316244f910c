//! `delayline limits`.

use std::process::ExitCode;

use delayline::admin::{Rate, SetLimits, Stats};
use delayline::backend::Op;
use delayline::limits::{MAX_LEASED, MAX_RATE_COUNT};
use delayline_json::{self as json, harmless_line};
use serde_json::json;

use super::durations::{delay_of, duration_of};
use crate::args::{Limits, Target};
use crate::failure::Failure;
use crate::print::write;

pub(crate) async fn run(target: &Target, args: Limits) -> Result<ExitCode, Failure> {
    let set = changes(&args)?;
    let queue = if args.create { target.open().await? } else { target.open_known().await? };
    if set != SetLimits::new() {
        queue.set_limits(set).await?;
    }
    let (stats, name) = (queue.stats().await?, target.queue()?);
    write(&if args.json {
        format!("{}\n", json!({"queue": name, "limits": json::limits(&stats.limits)}))
    } else {
        text(&harmless_line(name), &stats)
    })?;
    Ok(ExitCode::SUCCESS)
}

fn changes(args: &Limits) -> Result<SetLimits, Failure> {
    let mut set = SetLimits::new();
    if let Some(leased) = &args.leased {
        set = set.leased(unless_none(leased, |leased| number("--leased", leased, MAX_LEASED))?);
    }
    if let Some(most) = &args.each_group {
        set = set.each_group(unless_none(most, |most| number("--each-group", most, MAX_LEASED))?);
    }
    if let Some(in_order) = &args.in_order {
        set = set.in_order(in_order == "yes");
    }
    if args.rate.as_deref() == Some("none") && args.burst.is_some() {
        return Err(Failure::usage("--burst belongs to a rate, and --rate none ends it"));
    }
    if let Some(rate) = &args.rate {
        set = set.rate(unless_none(rate, |rate| rate_of(rate, args.burst))?);
    }
    match args.hold.as_deref() {
        None => {}
        Some("none") => set = set.end_hold(),
        Some(hold) => set = set.hold_for(delay_of("--hold", hold)?),
    }
    Op::SetLimits(set).validate().map_err(|error| Failure::usage(error.to_string()))?;
    Ok(set)
}

fn unless_none<T>(
    text: &str,
    read: impl FnOnce(&str) -> Result<T, Failure>,
) -> Result<Option<T>, Failure> {
    if text == "none" { Ok(None) } else { read(text).map(Some) }
}

fn number(what: &str, text: &str, most: u32) -> Result<u32, Failure> {
    text.parse().map_err(|_| {
        Failure::usage(format!("{what}: {text:?} is not a whole number from 1 to {most}"))
    })
}

fn rate_of(text: &str, burst: Option<u32>) -> Result<Rate, Failure> {
    let Some((count, period)) = text.split_once('/') else {
        return Err(Failure::usage(format!("--rate: {text:?} is not COUNT/PERIOD, such as 10/1s")));
    };
    let count = number("--rate", count, MAX_RATE_COUNT)?;
    Ok(Rate::new(count, duration_of("--rate", period)?, burst.unwrap_or(count)))
}

fn text(queue: &str, stats: &Stats) -> String {
    let (limits, mut text) = (&stats.limits, String::new());
    if let Some(most) = limits.leased {
        text += &format!("{queue}: {} of {most} leased\n", stats.leased);
    }
    if let Some(most) = limits.each_group {
        text += &format!("{queue}: at most {most} of each group leased\n");
    }
    if limits.in_order {
        text += &format!("{queue}: messages of a group are handled one at a time, in order\n");
    }
    if let Some(rate) = limits.rate {
        let (count, per, burst) = (rate.count, rate.per(), rate.burst);
        text += &format!("{queue}: at most {count} in {per:?}, up to {burst} at once\n");
    }
    if let Some(open_at) = limits.rate_open_at {
        text += &format!("{queue}: the next one at {open_at}\n");
    }
    if let Some(until) = limits.held_until {
        text += &format!("{queue}: held until {until}\n");
    }
    if text.is_empty() { format!("{queue}: no limits\n") } else { text }
}
