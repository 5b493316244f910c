//! The results, for the terminal, as a page and as JSON.

use std::env;
use std::fmt;

use anyhow::{Context, Result};
use delayline_benches::settings;
use delayline_test_server::Server;
use serde_json::{Value, json};

use crate::Name;
use crate::facts::{self, GUARANTEES};
use crate::measure::{Figures, Step};
use crate::peers::postgres;
use crate::rounds::{Rounds, not_begun};

/// The figures, and the machine they were taken on.
pub(crate) struct Page {
    pub(crate) circumstances: String,
    pub(crate) played: Rounds,
}

impl Page {
    fn rows(&self) -> &[(Name, Figures)] {
        &self.played.rows
    }

    /// Delayline by its first driver, with which all others are compared.
    fn ours(&self) -> Option<Figures> {
        self.rows().iter().find(|(name, _)| *name == Name::Delayline).map(|(_, figures)| *figures)
    }

    /// Each failed round with its cause, and how many were not begun.
    fn failures(&self) -> Vec<String> {
        let missing = Some(self.played.not_begun).filter(|count| *count > 0).map(not_begun);
        self.played.failures.iter().cloned().chain(missing).collect()
    }

    /// The cells of a row, but for the name.
    fn cells(&self, figures: &Figures) -> [String; 9] {
        let bulk = |figure: fn(Step) -> f64| {
            figures.bulk.map_or_else(|| "-".to_owned(), |b| shown(figure(b)))
        };
        let ratio = self.ours().map(|ours| ours.work.rate / figures.work.rate);
        [
            figures.messages.to_string(),
            figures.rounds.to_string(),
            shown(figures.send.rate),
            bulk(|step| step.rate),
            shown(figures.work.rate),
            shown(figures.send.cpu),
            bulk(|step| step.cpu),
            shown(figures.work.cpu),
            ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")),
        ]
    }

    /// A sentence for every figure in which another queue is ahead.
    fn defeats(&self) -> Vec<String> {
        let Some(ours) = self.ours() else { return Vec::new() };
        let mut sentences = Vec::new();
        let ahead = |verb: &str, unit: &str, theirs: f64, ours: f64| {
            format!("{verb}: {} {unit} against {}", shown(theirs), shown(ours))
        };
        for (name, figures) in self.rows().iter().filter(|(name, _)| !name.is_ours()) {
            let mut wins = Vec::new();
            let steps = [
                ("sends one by one", Some(figures.send), Some(ours.send)),
                ("sends in bulk", figures.bulk, ours.bulk),
                ("handles messages", Some(figures.work), Some(ours.work)),
            ];
            for (verb, theirs, ours) in steps {
                let (Some(theirs), Some(ours)) = (theirs, ours) else { continue };
                if theirs.rate > ours.rate {
                    wins.push(ahead(
                        &format!("{verb} faster"),
                        "messages/s",
                        theirs.rate,
                        ours.rate,
                    ));
                }
                if theirs.cpu < ours.cpu {
                    let verb = format!("{verb} with less server time");
                    wins.push(ahead(&verb, "us per message", theirs.cpu, ours.cpu));
                }
            }
            if !wins.is_empty() {
                sentences.push(format!("{} {}.", facts::of(*name).title, wins.join("; it ")));
            }
        }
        sentences
    }

    pub(crate) fn to_markdown(&self) -> String {
        let mut text = format!("{HEAD}```text\n{}\n```\n\n## Figures\n\n", self.circumstances);
        text += &format!("| queue | {} |\n{}", HEADINGS.join(" | "), "|---".repeat(10) + "|\n");
        for (name, figures) in self.rows() {
            let cells = self.cells(figures).join(" | ");
            text += &format!("| {} | {cells} |\n", facts::of(*name).title);
        }
        if self.to_plot().is_some() {
            text += &format!("\n![{PLOT}](peers.svg)\n");
        }
        text += LEGEND;
        let defeats = self.defeats();
        text += "\n## Where another queue is ahead\n\n";
        if defeats.is_empty() {
            text += "In none of these figures.\n";
        }
        for sentence in defeats {
            text += &format!("- {sentence}\n");
        }
        let failures = self.failures();
        if !failures.is_empty() {
            text += "\n## What failed\n\n";
        }
        for failure in failures {
            text += &format!("- {failure}\n");
        }
        text += "\n## How each was used\n\n";
        for (name, _) in self.rows() {
            let facts = facts::of(*name);
            text += &format!("- **{}**: {}\n", facts.title, facts.settings);
        }
        text += &format!("\n## What each guarantees\n\n{GUARANTEES_HEAD}");
        text += &format!("| queue | {} |\n{}", GUARANTEES.join(" | "), "|---".repeat(8) + "|\n");
        for (name, _) in self.rows().iter().filter(|(name, _)| !name.is_variant()) {
            let facts = facts::of(*name);
            text += &format!("| {} | {} |\n", facts.title, facts.guarantees.join(" | "));
        }
        text
    }

    pub(crate) fn to_json(&self) -> Value {
        let step = |step: Step| json!({ "rate": step.rate, "server_us": step.cpu });
        let row = |(name, figures): &(Name, Figures)| {
            json!({
                "queue": facts::of(*name).title, "messages": figures.messages,
                "rounds": figures.rounds, "send": step(figures.send), "bulk": figures.bulk.map(step),
                "work": step(figures.work),
            })
        };
        let rows: Vec<Value> = self.rows().iter().map(row).collect();
        let tables: Vec<_> = self.to_plot().into_iter().collect();
        json!({
            "circumstances": self.circumstances, "queues": rows, "failures": self.failures(),
            "tables": tables,
        })
    }

    /// How fast the queues are, in the form that plots are drawn from. `None` if only bare commands
    /// were measured.
    pub(crate) fn to_plot(&self) -> Option<Value> {
        let queues: Vec<_> = self.rows().iter().filter(|(name, _)| name.is_a_queue()).collect();
        let steps: [(&str, StepOf); 3] = [
            ("sent one by one", |it| Some(it.send)),
            ("sent in bulk", |it| it.bulk),
            ("handled and acked", |it| Some(it.work)),
        ];
        // A figure that one queue lacks is in the table only.
        let is_known = |step: StepOf| queues.iter().all(|(_, figures)| step(figures).is_some());
        let steps: Vec<_> = steps.into_iter().filter(|(_, step)| is_known(*step)).collect();
        let ends = |what| ["least", "median", "most"].map(|end| format!("{what}, {end}"));
        let columns: Vec<_> = steps.iter().flat_map(|(what, _)| ends(what)).collect();
        let row = |(name, figures): &&(Name, Figures)| {
            let known = steps.iter().filter_map(|(_, step)| step(figures));
            let spreads: Vec<_> = known.flat_map(|it| [it.least, it.rate, it.most]).collect();
            json!({ "name": facts::of(*name).title, "figures": spreads })
        };
        let rows: Vec<_> = queues.iter().map(row).collect();
        (!rows.is_empty()).then(|| {
            json!({
                "name": "peers", "title": PLOT, "unit": "messages/s", "columns": columns,
                "columns_are": "least, median, most", "scale": "linear", "rows": rows,
            })
        })
    }
}

type StepOf = fn(&Figures) -> Option<Step>;

const PLOT: &str = "Messages per second, beside other queues";

impl fmt::Display for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:32}", "")?;
        for heading in HEADINGS {
            write!(f, " {heading:>14}")?;
        }
        for (name, figures) in self.rows() {
            write!(f, "\n{:32}", facts::of(*name).title)?;
            for cell in self.cells(figures) {
                write!(f, " {cell:>14}")?;
            }
        }
        for failure in self.failures() {
            write!(f, "\nfailed: {failure}")?;
        }
        Ok(())
    }
}

/// The machine, the servers and the command, in a few lines.
pub(crate) fn circumstances(names: &[Name]) -> Result<String> {
    let server = Server::builder().tcp().try_start()?;
    let cores = std::thread::available_parallelism()?;
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    let program = env::args().next().context("a program has a name")?;
    let program = program.rsplit('/').next().unwrap_or_default().to_owned();
    let mut command = vec![program];
    let mut args = env::args().skip(1);
    while let Some(arg) = args.next() {
        // Where the page is written says nothing about it.
        if arg == "--save" {
            args.next();
        } else if !arg.starts_with("--save=") {
            command.push(arg);
        }
    }
    // Where it is missing, the queue's row says so.
    let postgres = names.contains(&Name::PgBoss).then(|| postgres::version().ok()).flatten();
    Ok(format!(
        "{cores} cores of {}, {}\n{}, TCP on this machine, payloads of 100 bytes\n{}{}",
        model.unwrap_or("an unknown processor"),
        env::consts::OS,
        settings(&server),
        postgres.map_or_else(String::new, |version| version + "\n"),
        command.join(" ")
    ))
}

/// With as many digits as can mean something.
fn shown(figure: f64) -> String {
    match figure.abs() {
        100.0.. => format!("{figure:.0}"),
        10.0.. => format!("{figure:.1}"),
        _ => format!("{figure:.2}"),
    }
}

const HEADINGS: [&str; 9] = [
    "messages",
    "rounds",
    "send/s",
    "bulk/s",
    "work/s",
    "us/send",
    "us/bulk",
    "us/work",
    "Delayline x",
];

const HEAD: &str = "\
# Delayline compared with other queues

Written by `cargo xtask bench peers --save DIRECTORY`; the figures are also in [peers.json](peers.json). Compare
only figures of one run: machines differ, and one machine varies over time. A queue that guarantees less
has less to do, so read the figures together with the second table. All queues are on Redis, in memory; pg-boss,
if it was measured, is on PostgreSQL, which answers when messages are on disk. This run:

";

const LEGEND: &str = "
- **send/s**: messages per second, sent one by one by 256 tasks. Delayline's library merges concurrent sends;
  none of the others does.
- **bulk/s**: with the queue's bulk call: 1,000 messages per call; for Delayline 10,000, which it splits into
  operations of at most 1,000.
- **work/s**: claimed, handled by an empty handler and acked by one process, up to 256 at once.
- **us/send**, **us/bulk**, **us/work**: server processor time per message, in microseconds
  (`used_cpu_user` and `used_cpu_sys`; of PostgreSQL, that of all its processes, to 10 ms in all).
- **Delayline x**: the work rate of Delayline (redis-rs) divided by this queue's.

In each round, each queue gets a fresh server and is warmed up with a tenth of the messages. Each figure is the median
of the queue's **rounds** (`--rounds`, default 3; fewer if `--minutes`, default 10, are over). After each step, the
queue's own counters must show that all messages are stored, or that none is left. The number handled must equal the
number sent. A round that fails is listed below with its cause, and has no figures. A reply to rsmq_async, apalis-redis,
oxana or bare commands may take 60 s, and so may a connection from oxana's pool: a busy machine exceeds their defaults,
such as the 500 ms of redis-rs. The other queues keep their defaults. Client and server share the machine. Both rows of
rsmq_async send in the same way: the difference between them there is the random variation of this run.
";

const GUARANTEES_HEAD: &str = "\
From the sources of the versions measured. *Early* means before the time that the sender specified, by the clock
that decides. A *late* ack is one sent after the message was given to another worker.

";
