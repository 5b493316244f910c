//! The figures of a run, and whether they are as promised.

use std::fmt;
use std::time::Duration;

use delayline_benches::Requests;
use hdrhistogram::Histogram;

use crate::heartbeat::Stalls;
use crate::ledger::{Bounds, Class, Late};
use crate::machine::{Process, Usage};
use crate::program::Report;
use crate::shape::{DelayClass, Shape};

/// Everything that a run has measured.
pub(crate) struct Evidence {
    pub(crate) programs: Vec<Measured>,
    pub(crate) stalls: Stalls,
    /// One sample per second.
    pub(crate) processes: Vec<(Duration, Process)>,
    /// The number of open descriptors at the end of each idle spell.
    pub(crate) descriptors: Vec<usize>,
    pub(crate) total: Duration,
    pub(crate) longest_delay: Duration,
    pub(crate) bounds: Bounds,
}

/// One program.
pub(crate) struct Measured {
    pub(crate) name: String,
    pub(crate) driver: &'static str,
    pub(crate) shape: Shape,
    pub(crate) report: Report,
    /// One per cycle.
    pub(crate) spells: Vec<Spell>,
    /// Number of requests of the whole run.
    pub(crate) requests: f64,
    /// Number of queues of the programs with many queues.
    pub(crate) queues: usize,
    /// Keys that should be gone.
    pub(crate) residue: Vec<String>,
}

/// A server in an idle spell.
pub(crate) struct Spell {
    pub(crate) time: Duration,
    /// The requests in that time.
    pub(crate) requests: Requests,
    /// At its end.
    pub(crate) usage: Usage,
}

/// The verdict on one property.
pub(crate) struct Check {
    what: String,
    found: String,
    pub(crate) held: bool,
}

/// Judges everything.
pub(crate) fn judge(evidence: &Evidence) -> Vec<Check> {
    let mut checks = Vec::new();
    for program in &evidence.programs {
        program.judge_lateness(evidence, &mut checks);
        program.judge_account(&mut checks);
        program.judge_rests(&mut checks);
    }
    judge_costs(evidence, &mut checks);
    judge_process(evidence, &mut checks);
    checks
}

impl Measured {
    fn judge_lateness(&self, evidence: &Evidence, checks: &mut Vec<Check>) {
        for class in self.classes(evidence.longest_delay) {
            let bound = evidence.bounds.of(class);
            let what = format!("{}: lateness of {} within {bound:?}", self.name, class.name());
            let Some(histogram) = self.report.account.lateness.get(&class) else {
                checks.push(Check::new(what, false, "saw none"));
                continue;
            };
            let late = self.report.account.late.iter().filter(|late| late.class == class);
            let beyond =
                |late: &&Late| late.by() > bound + evidence.stalls.within(late.due, late.begun);
            let beyond: Vec<_> = late.filter(beyond).collect();
            let found = match beyond.iter().max_by_key(|late| late.by()) {
                None => format!("{:.1} ms at most", ms(histogram.max())),
                Some(worst) => format!(
                    "{} of {} beyond it and the machine's stalls; the worst by {:.0?} on {} after a \
                     delay of {:.3?}",
                    beyond.len(),
                    histogram.len(),
                    worst.by(),
                    worst.queue,
                    worst.delay
                ),
            };
            checks.push(Check::new(what, beyond.is_empty(), found));
        }
    }

    /// Returns the classes of messages that such a program must have seen.
    fn classes(&self, longest: Duration) -> Vec<Class> {
        let fits = |class: &DelayClass| class.range(self.shape).0 < longest;
        let lone = DelayClass::ALL.into_iter().filter(fits).map(Class::Lone);
        match self.shape {
            Shape::Single => lone.collect(),
            Shape::Few | Shape::Many => lone.chain([Class::Wave]).collect(),
            Shape::Busy => vec![Class::Stream],
        }
    }

    fn judge_account(&self, checks: &mut Vec<Check>) {
        let (account, summary) = (&self.report.account, &self.report.summary);
        let what = format!("{}: never early, nothing lost, nothing twice", self.name);
        let found = match account.faults.first() {
            None => format!("{} messages, {} deliveries", account.sent, account.deliveries),
            Some(first) => format!("{} faults, the first: {first}", account.fault_count),
        };
        checks.push(Check::new(what, account.fault_count == 0 && account.handled > 0, found));
        let what = format!("{}: the workers count the same", self.name);
        let held = summary.acked == account.handled
            && summary.acked + summary.failed + summary.cancelled + summary.snoozed
                == account.deliveries
            && account.handled + account.cancelled == account.sent
            && summary.lost + summary.unsettled + summary.dead == 0;
        checks.push(Check::new(what, held, format!("{} handled, {summary:?}", account.handled)));
        let what = format!("{}: nothing left when the retention has passed", self.name);
        let found = match self.residue.first() {
            None => "only control records, totals and bells".to_owned(),
            Some(first) => format!("{} keys, the first: {first}", self.residue.len()),
        };
        checks.push(Check::new(what, self.residue.is_empty(), found));
    }

    fn judge_rests(&self, checks: &mut Vec<Check>) {
        let spells = self.report.rests.iter().zip(&self.spells);
        let quiet: Vec<_> = spells.filter(|(rest, _)| rest.waiting == 0).collect();
        let allowed = self.shape.idle_rate(self.queues);
        let what = format!("{}: idle, at most {allowed:.2} commands/s per process", self.name);
        let processes = f64::from(u32::try_from(self.shape.processes()).unwrap_or(u32::MAX));
        let (mut worst, mut held) = (0.0_f64, !quiet.is_empty());
        for (_, spell) in &quiet {
            let (sent, seconds) = (spell.requests.sum() / processes, spell.time.as_secs_f64());
            worst = worst.max(sent / seconds);
            // One more poll of each queue, and one wait, may fall on the edge of the time.
            held &= sent <= seconds * allowed + self.shape.polls(self.queues) + 1.0;
        }
        let found = format!("{worst:.2}/s at most, in {} idle spells", quiet.len());
        checks.push(Check::new(what, held, found));
        let what = format!("{}: idle, the client does next to nothing", self.name);
        let cpu = self.report.rests.iter().map(|rest| rest.cpu).fold(0.0, f64::max);
        let found = format!("{:.2} % of a core at most", cpu * 100.0);
        checks.push(Check::new(what, cpu <= MOST_IDLE_CPU, found));
        let what = format!("{}: idle, no key of a message is left", self.name);
        let keys = quiet.iter().map(|(_, spell)| spell.usage.keys_of_messages).max();
        let found =
            keys.map_or_else(|| "saw no idle spell".to_owned(), |keys| format!("{keys} keys"));
        checks.push(Check::new(what, keys == Some(0), found));
        let tasks: Vec<_> = quiet.iter().map(|(rest, _)| rest.tasks).collect();
        checks.push(Check::steady(format!("{}: tasks alive", self.name), &tasks));
        let clients: Vec<_> = quiet.iter().map(|(_, spell)| spell.usage.clients).collect();
        checks.push(Check::steady(format!("{}: connections", self.name), &clients));
    }

    /// Returns a row: messages, commands per message, and commands per second while idle.
    pub(crate) fn costs(&self) -> String {
        let sent = f64::from(u32::try_from(self.report.account.sent).unwrap_or(u32::MAX));
        let rate = |of: fn(&Requests) -> f64| {
            let rates =
                self.spells.iter().map(|spell| of(&spell.requests) / spell.time.as_secs_f64());
            rates.fold(0.0, f64::max)
        };
        let (scripts, waits) = (rate(|requests| requests.scripts), rate(|requests| requests.waits));
        let each = self.requests / sent;
        format!("{sent:>10}{each:>14.2}{scripts:>16.2}{waits:>14.2}")
    }

    /// Returns the client's processor time per message of a wave, in milliseconds.
    pub(crate) fn wave_cost(&self) -> Option<f64> {
        let waves = self.report.waves;
        (waves.messages > 0).then(|| waves.cpu.as_secs_f64() * 1e3 / f64::from(waves.messages))
    }
}

/// Judges whether a message costs more because there are more queues.
fn judge_costs(evidence: &Evidence, checks: &mut Vec<Check>) {
    for many in evidence.programs.iter().filter(|program| program.shape == Shape::Many) {
        let few = evidence
            .programs
            .iter()
            .find(|program| program.shape == Shape::Few && program.driver == many.driver);
        let what = format!("{}: a message costs the client as much as with few queues", many.name);
        let (Some(many), Some(few)) = (many.wave_cost(), few.and_then(Measured::wave_cost)) else {
            checks.push(Check::new(what, false, "saw no wave"));
            continue;
        };
        let found = format!("{many:.3} ms and {few:.3} ms: {:.1} times as much", many / few);
        checks.push(Check::new(what, many <= few * MOST_COST, found));
    }
}

fn judge_process(evidence: &Evidence, checks: &mut Vec<Check>) {
    let beats = evidence.stalls.beats;
    checks.push(Check::new("the machine was watched", beats > 0, format!("{beats} heartbeats")));
    checks.push(Check::steady("descriptors".to_owned(), &evidence.descriptors));
    let resident = evidence.processes.iter().map(|(at, process)| (*at, process.resident_bytes));
    let resident: Vec<_> = resident.collect();
    let what = "memory of the client grows no more".to_owned();
    checks.push(Check::flat(what, &resident, evidence.total, CLIENT_NOISE));
    for program in &evidence.programs {
        let spells = u32::try_from(program.spells.len()).unwrap_or(u32::MAX).max(1);
        let at = |number| evidence.total * number / spells;
        let used = (1..).zip(&program.spells).map(|(n, spell)| (at(n), spell.usage.used_bytes));
        let used: Vec<_> = used.collect();
        let what = format!("{}: memory of the server grows no more", program.name);
        checks.push(Check::flat(what, &used, evidence.total, SERVER_NOISE));
    }
}

impl Check {
    fn new(what: impl Into<String>, held: bool, found: impl Into<String>) -> Self {
        Self { what: what.into(), found: found.into(), held }
    }

    /// Holds if the least figure of the second half is at most the greatest of the first half.
    ///
    /// Single spells differ: now and then a second listener hears the same bells for a few seconds.
    fn steady<T: PartialOrd + fmt::Display>(what: String, figures: &[T]) -> Self {
        let (first, second) = figures.split_at(figures.len().div_ceil(2));
        let most = first.iter().reduce(|one, other| if other > one { other } else { one });
        let least = second.iter().reduce(|one, other| if other < one { other } else { one });
        match (most, least) {
            (Some(most), Some(least)) => {
                let found = format!("{most} at most, then {least} at least");
                Self::new(what, least <= most, found)
            }
            (Some(only), None) => Self::new(what, true, format!("{only}")),
            _ => Self::new(what, false, "saw no idle spell"),
        }
    }

    /// Holds if a line through the second half of the time rises by at most the noise.
    fn flat(what: String, figures: &[(Duration, f64)], total: Duration, noise: f64) -> Self {
        let second = figures.iter().filter(|(at, _)| *at >= total / 2).copied();
        let second: Vec<_> = second.map(|(at, bytes)| (at.as_secs_f64(), bytes)).collect();
        let Some((_, last)) = second.last() else {
            return Self::new(what, false, "saw nothing");
        };
        let mib = |bytes: f64| bytes / 1024.0 / 1024.0;
        if total < SHORTEST_FOR_GROWTH {
            let found = format!("{:.2} MiB, judged from {SHORTEST_FOR_GROWTH:?} on", mib(*last));
            return Self::new(what, true, found);
        }
        let growth = slope(&second) * total.as_secs_f64() / 2.0;
        let found = format!(
            "{:.2} MiB, {:+.3} MiB/h over the second half",
            mib(*last),
            mib(slope(&second)) * 3_600.0
        );
        Self::new(what, growth <= noise, found)
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = if self.held { "held  " } else { "FAILED" };
        write!(f, "{held} {}: {}", self.what, self.found)
    }
}

/// Returns the slope of the line with the least squares.
fn slope(points: &[(f64, f64)]) -> f64 {
    let n = points.iter().map(|_| 1.0).sum::<f64>();
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let products = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum::<f64>();
    let squares = points.iter().map(|point| (point.0 - x).powi(2)).sum::<f64>();
    if squares > 0.0 { products / squares } else { 0.0 }
}

/// Returns a row: quantiles of lateness, and the number of messages in each bucket.
pub(crate) fn lateness_row(histogram: &Histogram<u64>) -> String {
    let at = |quantile| format!("{:>9.1}", ms(histogram.value_at_quantile(quantile)));
    let quantiles = [0.5, 0.99, 0.999, 1.0].map(at).concat();
    let counts = BUCKETS_MS.iter().zip(&BUCKETS_MS[1..]).map(|(from, to)| {
        let count = histogram.count_between(from * 1_000, to * 1_000 - 1);
        format!("{count:>8}")
    });
    let beyond = histogram.len() - histogram.count_between(0, 1_000_000 - 1);
    format!("{:>8}{quantiles}  {}{beyond:>8}", histogram.len(), counts.collect::<String>())
}

/// The heads of such rows.
pub(crate) const LATENESS_HEAD: &str = "   count   p50 ms      p99    p99.9      max      <2 ms      \
                                        <5     <10     <20     <50    <100    <200    <1 s     \
                                        more";

fn ms(us: u64) -> f64 {
    f64::from(u32::try_from(us).unwrap_or(u32::MAX)) / 1_000.0
}

const BUCKETS_MS: [u64; 9] = [0, 2, 5, 10, 20, 50, 100, 200, 1_000];
/// Maximum ratio of the costs of a message with many queues and with few. Claims and settlements of
/// one message cost more than those of several.
const MOST_COST: f64 = 5.0;
/// Maximum share of a core while idle.
const MOST_IDLE_CPU: f64 = 0.05;
/// The shortest run whose growth of memory is judged.
const SHORTEST_FOR_GROWTH: Duration = Duration::from_secs(20 * 60);
/// Growth in bytes that counts as noise.
const CLIENT_NOISE: f64 = 4.0 * 1024.0 * 1024.0;
const SERVER_NOISE: f64 = 1024.0 * 1024.0;

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::ledger::Account;
    use crate::program::{Rest, Waves};

    const LONGEST_DELAY: Duration = Duration::from_secs(60);
    const REQUESTS: Requests = Requests { scripts: 8.0, waits: 4.0, pings: 0.0 };

    /// Returns a program that meets all checks.
    fn sound(shape: Shape) -> Measured {
        let mut account = Account { sent: 9, deliveries: 9, handled: 9, ..Account::default() };
        let mut report = Report {
            account: Account::default(),
            waves: Waves { messages: 10, cpu: Duration::from_millis(1) },
            rests: vec![Rest { waiting: 0, tasks: 7, cpu: 0.0 }; 2],
            summary: delayline::worker::Summary::default(),
        };
        report.summary.acked = 9;
        let usage = Usage { clients: 3.0, used_bytes: 1e6, keys_of_messages: 0 };
        let spell = || Spell { time: Duration::from_secs(30), requests: REQUESTS, usage };
        let (name, driver) = (shape.name().to_owned(), "redis-rs");
        let mut program = Measured {
            name,
            driver,
            shape,
            report,
            spells: vec![spell(), spell()],
            requests: 50.0,
            queues: 300,
            residue: Vec::new(),
        };
        for class in program.classes(LONGEST_DELAY) {
            let due = delayline::Timestamp::from_ms(1_800_000_000_000).unwrap();
            account.note(class, "queue", Duration::ZERO, due, due.into());
        }
        program.report.account = account;
        program
    }

    fn evidence(programs: Vec<Measured>) -> Evidence {
        let process = Process { resident_bytes: 1e7, descriptors: 9 };
        Evidence {
            programs,
            stalls: Stalls::of(Vec::new()),
            processes: (0..3_600).map(|s| (Duration::from_secs(s), process)).collect(),
            descriptors: vec![9, 9],
            total: Duration::from_secs(3_600),
            longest_delay: LONGEST_DELAY,
            bounds: Bounds {
                lateness: Duration::from_millis(100),
                busy_lateness: Duration::from_millis(500),
            },
        }
    }

    fn failures(evidence: &Evidence) -> Vec<String> {
        let failed = judge(evidence).into_iter().filter(|check| !check.held);
        failed.map(|check| check.to_string()).collect()
    }

    fn all_sound() -> Evidence {
        evidence(Shape::ALL.map(sound).into())
    }

    /// Asserts that after this change of sound evidence, checks fail, and only checks with
    /// `part` in their text.
    #[track_caller]
    fn fails(part: &str, change: impl Fn(&mut Evidence)) {
        let mut evidence = all_sound();
        change(&mut evidence);
        let failures = failures(&evidence);
        assert!(!failures.is_empty(), "{part}: nothing fails");
        assert!(failures.iter().all(|failure| failure.contains(part)), "{part}: {failures:#?}");
    }

    #[test]
    fn sound_evidence_passes() {
        assert_eq!(failures(&all_sound()), [""; 0]);
    }

    #[test]
    fn a_late_message_fails_unless_the_machine_stood_still() {
        let late = |evidence: &mut Evidence| {
            let (due, begun) = (SystemTime::now(), SystemTime::now() + Duration::from_millis(150));
            let (class, queue) = (Class::Lone(DelayClass::Poll), "single-3".to_owned());
            let late = Late { class, queue, delay: Duration::from_millis(4_567), due, begun };
            evidence.programs[0].report.account.late.push(late);
            (due, begun)
        };
        fails("single: lateness of poll within 100ms", |evidence| {
            late(evidence);
        });
        let mut excused = all_sound();
        let (due, begun) = late(&mut excused);
        excused.stalls = Stalls::of(vec![(due, begun - Duration::from_millis(90))]);
        assert_eq!(failures(&excused), [""; 0]);
        fails("single: lateness of poll within 100ms", |evidence| {
            let (due, begun) = late(evidence);
            evidence.stalls = Stalls::of(vec![(due, begun - Duration::from_millis(110))]);
        });
    }

    #[test]
    fn a_run_that_saw_nothing_fails() {
        fails("few: lateness of wave", |evidence| {
            evidence.programs[1].report.account.lateness.remove(&Class::Wave);
        });
        fails("single: ", |evidence| evidence.programs[0].spells.clear());
        fails("the machine was watched", |evidence| evidence.stalls = Stalls::default());
        fails("memory of the client", |evidence| evidence.processes.clear());
        fails("descriptors: saw no idle spell", |evidence| evidence.descriptors.clear());
        fails("busy: ", |evidence| evidence.programs[3].report.account.handled = 0);
    }

    #[test]
    fn growth_and_leftovers_fail() {
        fails("memory of the client", |evidence| {
            for (at, process) in &mut evidence.processes {
                process.resident_bytes += at.as_secs_f64() * 4_000.0;
            }
        });
        fails("busy: memory of the server", |evidence| {
            let usage = |used_bytes| Usage { clients: 3.0, used_bytes, keys_of_messages: 0 };
            let spell = |n| Spell {
                time: Duration::from_secs(30),
                requests: REQUESTS,
                usage: usage(f64::from(n) * 4e5),
            };
            evidence.programs[3].spells = (0..10).map(spell).collect();
        });
        fails("descriptors", |evidence| evidence.descriptors = vec![9, 9, 10, 10]);
        fails("few: tasks alive", |evidence| evidence.programs[1].report.rests[1].tasks = 8);
        fails("few: connections", |evidence| evidence.programs[1].spells[1].usage.clients = 4.0);
        fails("few: idle, no key", |evidence| {
            evidence.programs[1].spells[1].usage.keys_of_messages = 1;
        });
        fails("few: nothing left", |evidence| evidence.programs[1].residue = vec!["key".into()]);
    }

    #[test]
    fn too_high_costs_fail() {
        fails("few: idle, at most 0.50", |evidence| {
            evidence.programs[1].spells[0].requests.scripts += 15.0;
        });
        fails("many: idle, at most 6.77", |evidence| {
            evidence.programs[2].spells[0].requests.scripts += 493.0;
        });
        fails("few: idle, the client", |evidence| evidence.programs[1].report.rests[1].cpu = 0.06);
        fails("many: a message costs", |evidence| {
            evidence.programs[2].report.waves.cpu = Duration::from_millis(6);
        });
    }

    #[test]
    fn a_fault_and_a_count_that_differs_fail() {
        fails("never early", |evidence| {
            evidence.programs[1].report.account.fault("a handler began early".to_owned());
        });
        fails("the workers count", |evidence| evidence.programs[1].report.summary.acked = 8);
        fails("the workers count", |evidence| evidence.programs[1].report.summary.lost = 1);
        fails("the workers count", |evidence| evidence.programs[1].report.account.sent = 10);
    }
}
