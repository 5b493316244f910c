//! Rounds of measurements: one that fails or hangs costs the others nothing.

use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Error, Result, anyhow};
use tokio::task::LocalSet;

use crate::Name;
use crate::facts;
use crate::measure::Figures;

/// How long the measurements may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// All of them. None begins that would probably end later.
    pub(crate) all: Duration,
    /// Each of them: one that hangs is ended.
    pub(crate) each: Duration,
}

/// The results of all rounds.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    /// The medians of each queue that has figures.
    pub(crate) rows: Vec<(Name, Figures)>,
    /// Each failed round with its cause.
    pub(crate) failures: Vec<String>,
    /// Measurements for which no time was left.
    pub(crate) not_begun: usize,
}

/// A queue's rounds so far.
struct Measured {
    name: Name,
    figures: Vec<Figures>,
    longest: Duration,
}

/// Measures queue after queue, round by round: so an hour in which the machine is slow is slow for
/// all. Shows what runs and how much is left.
pub(crate) async fn play<F>(
    names: &[Name],
    rounds: usize,
    limits: Limits,
    measure: impl Fn(Name) -> F,
) -> Rounds
where
    F: Future<Output = Result<Figures>> + 'static,
{
    let (begin, all, mut played) = (Instant::now(), rounds * names.len(), Rounds::default());
    let queue =
        |name: &Name| Measured { name: *name, figures: Vec::new(), longest: Duration::ZERO };
    let mut queues: Vec<_> = names.iter().map(queue).collect();
    let places = (1..=rounds).flat_map(|round| (0..names.len()).map(move |place| (round, place)));
    for (done, (round, place)) in places.enumerate() {
        let (queue, elapsed) = (&mut queues[place], begin.elapsed());
        let (title, left) = (facts::of(queue.name).title, limits.all.saturating_sub(elapsed));
        if left <= queue.longest {
            played.not_begun = all - done;
            eprintln!("{}", not_begun(played.not_begun));
            break;
        }
        let number = done + 1;
        let estimate = estimated(elapsed, done, all, left);
        eprintln!("[{number} of {all}] round {round} of {rounds}: {title}{estimate}");
        let start = Instant::now();
        match measured(measure(queue.name), limits.each.min(left)).await {
            Ok(figures) => queue.figures.push(figures),
            Err(error) => {
                let failure = format!("{title}, round {round}: {error:#}");
                eprintln!("failed: {failure}");
                played.failures.push(failure);
            }
        }
        queue.longest = queue.longest.max(start.elapsed());
    }
    let medians = |it: Measured| Some((it.name, Figures::median(&it.figures)?));
    played.rows = queues.into_iter().filter_map(medians).collect();
    played
}

/// Runs in a separate task, so that a panic ends nothing else.
async fn measured<F>(measure: F, most: Duration) -> Result<Figures>
where
    F: Future<Output = Result<Figures>> + 'static,
{
    let tasks = LocalSet::new();
    let task = tasks.spawn_local(measure);
    let Ok(ended) = tasks.run_until(tokio::time::timeout(most, task)).await else {
        return Err(anyhow!("it had not ended after {most:.0?}"));
    };
    ended.map_err(Error::from).context("the measurement was ended").flatten()
}

/// By the measurements so far.
fn estimated(elapsed: Duration, done: usize, all: usize, left: Duration) -> String {
    let Some(each) = u32::try_from(done).ok().and_then(|done| elapsed.checked_div(done)) else {
        return String::new();
    };
    let rest = each.saturating_mul(u32::try_from(all - done).unwrap_or(u32::MAX)).min(left);
    format!("; about {} s left", rest.as_secs())
}

/// The report about measurements for which no time was left.
pub(crate) fn not_begun(count: usize) -> String {
    let measurements = if count == 1 { "measurement was" } else { "measurements were" };
    format!("{count} {measurements} not begun: the time of --minutes was used up")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::measure::Step;
    use crate::page::Page;

    const LIMITS: Limits =
        Limits { all: Duration::from_secs(3_600), each: Duration::from_secs(3_600) };

    fn figures(rate: f64) -> Figures {
        let step = Step { rate, least: rate, most: rate, cpu: 1.0 };
        Figures { messages: 10, rounds: 1, send: step, bulk: None, work: step }
    }

    #[tokio::test]
    async fn a_round_that_fails_is_reported_and_costs_no_other_one() {
        let calls = Arc::new(AtomicUsize::new(0));
        let measure = |name| {
            let call = calls.fetch_add(1, Ordering::Relaxed);
            async move {
                match (name, call) {
                    (Name::Strings, 4) => Err(anyhow!("timed out").context("sending")),
                    (Name::Zset, 5) => panic!("a panic that is part of the test"),
                    (Name::Pop, _) => std::future::pending().await,
                    _ => Ok(figures(call as f64)),
                }
            }
        };
        let names = [Name::Strings, Name::Zset, Name::Delayline, Name::Pop];
        let limits = Limits { each: Duration::from_millis(50), ..LIMITS };
        let played = play(&names, 3, limits, measure).await;
        let rounds: Vec<_> = played.rows.iter().map(|(name, it)| (*name, it.rounds)).collect();
        assert_eq!(rounds, [(Name::Strings, 2), (Name::Zset, 2), (Name::Delayline, 3)]);
        assert_eq!(played.failures.len(), 5, "{played:?}");
        assert_eq!(played.not_begun, 0);

        let page = Page { circumstances: String::new(), played };
        let (text, json) = (page.to_markdown(), page.to_json());
        let cause = "SET + ZADD, GET, DEL + ZREM, round 2: sending: timed out";
        assert!(
            text.contains(cause) && text.contains("pop by a script, round 3: it had not ended")
        );
        assert!(text.contains("| SET + ZADD, GET, DEL + ZREM | 10 | 2 | "), "{text}");
        assert_eq!(json["queues"][0]["rounds"], 2);
        assert_eq!(json["failures"][1], cause);
    }

    #[tokio::test]
    async fn no_measurement_begins_for_which_no_time_is_left() {
        let limits = Limits { all: Duration::from_millis(250), ..LIMITS };
        let measure = |_| async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            Ok(figures(1.0))
        };
        let played = play(&[Name::Zset], 9, limits, measure).await;
        let rounds = played.rows[0].1.rounds;
        assert!((1..=2).contains(&rounds), "{played:?}");
        assert_eq!(played.not_begun, 9 - rounds);
        let page = Page { circumstances: String::new(), played };
        assert!(page.to_markdown().contains("measurements were not begun"));
    }
}
