//! `delayline schedule`.

mod file;

use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use delayline::admin::QueueName;
use delayline::schedules::{Put, Schedules, Spec};
use delayline::{Connect, Enqueued, Error, MessageId, Timestamp};
use delayline_admin::doctor::SCHEDULE_OVERDUE;
use delayline_json::{
    OwnedSchedules, Zone, distinct, harmless_line, schedule, schedule_spec, schedule_times,
};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::work::stop_on_signals;
use crate::args::{
    Overlap, Schedule, ScheduleApply, ScheduleList, ScheduleNamed, ScheduleNext, SchedulePut,
    ScheduleRun, ScheduleVerb, Target, When,
};
use crate::failure::{Failure, SOME_BAD};
use crate::print::{columns, json_line, write};
use crate::reading::typed;

pub(crate) async fn run(target: &Target, args: Schedule) -> Result<ExitCode, Failure> {
    let place = Place { target, queue: args.schedules };
    match args.verb {
        ScheduleVerb::Put(args) => place.put(args).await,
        ScheduleVerb::Apply(args) => place.apply(&args).await,
        ScheduleVerb::List(args) => place.list(&args).await,
        ScheduleVerb::Next(args) => place.next(args).await,
        ScheduleVerb::Remove(args) => {
            let removed = place.open_for(&args.name).await?.remove(&args.name).await?;
            changed(&args, removed, "removed")
        }
        ScheduleVerb::Pause(args) => {
            let paused = place.open_for(&args.name).await?.pause(&args.name).await?;
            changed(&args, paused, "paused")
        }
        ScheduleVerb::Resume(args) => {
            let resumed = place.open_for(&args.name).await?.resume(&args.name).await?;
            changed(&args, resumed, "resumed")
        }
        ScheduleVerb::RunNow(args) => place.run_now(&args).await,
        ScheduleVerb::Run(args) => place.run(&args).await,
    }
}

/// Where the schedules are.
struct Place<'a> {
    target: &'a Target,
    queue: String,
}

impl Place<'_> {
    async fn open(&self) -> Result<Schedules, Failure> {
        self.open_by(self.target.connect()?).await
    }

    /// For verbs that would find nothing in a new directory.
    async fn open_known(&self) -> Result<Schedules, Failure> {
        let connect = self.target.connect()?;
        self.target.refuse_new(&connect)?;
        self.open_by(connect).await
    }

    /// Like `open_known`, for the schedule of this name.
    async fn open_for(&self, name: &str) -> Result<Schedules, Failure> {
        MessageId::try_from(name).map_err(Error::from)?;
        self.open_known().await
    }

    /// Schedules in memory, which refuse the same schedules before a server is contacted.
    async fn trial(&self) -> Result<Schedules, Failure> {
        self.queue.parse::<QueueName>().map_err(Error::from)?;
        Ok(Schedules::open_named(&delayline::connect("memory:").await?, &self.queue).await?)
    }

    async fn open_by(&self, connect: Connect) -> Result<Schedules, Failure> {
        self.queue.parse::<QueueName>().map_err(Error::from)?;
        let opened = async { Schedules::open_named(&connect.connect().await?, &self.queue).await };
        opened.await.map_err(|error| self.target.not_opened(&error))
    }

    async fn put(&self, args: SchedulePut) -> Result<ExitCode, Failure> {
        let mut fields = fields(&args.when);
        fields.insert("queue".to_owned(), self.target.queue()?.into());
        if let Some(payload) = &args.payload {
            distinct(payload.as_bytes())
                .map_err(|why| Failure::usage(format!("the payload is not JSON: {why}")))?;
        }
        let payload: Option<&RawValue> =
            args.payload.as_deref().and_then(|json| serde_json::from_str(json).ok());
        let overlap = args.overlap.map(|overlap| match overlap {
            Overlap::Allow => "allow".to_owned(),
            Overlap::Skip => "skip".to_owned(),
        });
        for (name, value) in [
            ("kind", args.kind),
            ("group", args.group),
            ("overlap", overlap),
            ("lead", args.lead),
            ("grace", args.grace),
        ] {
            if let Some(value) = value {
                fields.insert(name.to_owned(), value.into());
            }
        }
        let spec = schedule_spec(fields, payload).map_err(Failure::usage)?;
        self.trial().await?.put(&args.name, &spec).await?;
        let put = self.open().await?.put(&args.name, &spec).await?;
        let word = match put {
            Put::Created => "created",
            Put::Unchanged => "unchanged",
            _ => "changed",
        };
        // By this machine's clock.
        let next = spec.upcoming(SystemTime::now()).next();
        if args.json {
            let line = json!({"name": args.name, "outcome": word, "next": next.map(shown)});
            write(&json_line(&line))?;
        } else {
            let next = next.map(|next| format!(", next {}", local(Some(&spec), next)));
            let next = next.unwrap_or_default();
            write(&format!("{}: {word}{next}\n", harmless_line(&args.name)))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    async fn apply(&self, args: &ScheduleApply) -> Result<ExitCode, Failure> {
        let OwnedSchedules { owner, schedules } = file::read(&args.file)?;
        self.trial().await?.declare(&owner, schedules.iter().cloned()).await?;
        let declared = self.open().await?.declare(&owner, schedules).await?;
        let counts = [
            ("created", declared.created),
            ("changed", declared.changed),
            ("unchanged", declared.unchanged),
            ("removed", declared.removed),
        ];
        write(&if args.json {
            let mut line: Map<_, _> =
                counts.into_iter().map(|(word, count)| (word.to_owned(), count.into())).collect();
            line.insert("owner".to_owned(), owner.into());
            json_line(&line.into())
        } else {
            let counts = counts.map(|(word, count)| format!("{word} {count}"));
            format!("{}: {}\n", harmless_line(&owner), counts.join(", "))
        })?;
        Ok(ExitCode::SUCCESS)
    }

    async fn list(&self, args: &ScheduleList) -> Result<ExitCode, Failure> {
        let entries = self.open_known().await?.list().await?;
        let overdue = entries.iter().filter(|entry| entry.overdue >= SCHEDULE_OVERDUE);
        if let Some(longest) = overdue.clone().max_by_key(|entry| entry.overdue) {
            let (late, all) = (overdue.count(), entries.len());
            let are = if late == 1 { "is" } else { "are" };
            eprintln!(
                "delayline: {late} of {all} schedules {are} overdue, {} for {} s: `delayline \
                 schedule run` runs a scheduler; the queue of schedules may also be paused, or a \
                 target queue full",
                harmless_line(&longest.name),
                longest.overdue.as_secs()
            );
        }
        if args.json {
            for entry in &entries {
                write(&json_line(&schedule(entry, true)))?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        let rows = entries.iter().map(|entry| {
            let next = match entry.next.first() {
                _ if entry.is_paused => "paused".to_owned(),
                _ if entry.is_dead => "dead letter".to_owned(),
                Some(&next) => local(entry.spec.as_ref(), next),
                None => String::new(),
            };
            let queue = entry.spec.as_ref().map_or("-", Spec::queue);
            vec![
                harmless_line(&entry.name),
                harmless_line(&schedule_times(entry)),
                queue.to_owned(),
                next,
            ]
        });
        write(&columns(&["NAME", "WHEN", "QUEUE", "NEXT"], rows))?;
        Ok(ExitCode::SUCCESS)
    }

    async fn next(&self, args: ScheduleNext) -> Result<ExitCode, Failure> {
        let after = args.after.as_deref().map(typed).transpose();
        let after = after.map_err(|why| Failure::usage(why).about("--after"))?;
        let next = |spec: &Spec| -> Vec<_> {
            let after = after.unwrap_or_else(SystemTime::now);
            spec.upcoming(after).take(usize::from(args.count)).collect()
        };
        let (spec, next) = if let Some(name) = args.name {
            let entry = self.open_for(&name).await?.get(&name).await?;
            let entry = entry.ok_or_else(|| unknown(&name))?;
            let Some(spec) = entry.spec else {
                let name = harmless_line(&name);
                let why = format!("this version cannot read the schedule {name}");
                return Err(Failure::input(why)
                    .hint("`delayline --queue schedules get NAME` shows its message"));
            };
            let stopped = entry.is_paused || entry.is_dead;
            if stopped {
                let why = if entry.is_paused { "paused" } else { "a dead letter" };
                eprintln!(
                    "delayline: the schedule is {why}; `delayline schedule resume` resumes it"
                );
            }
            let next = if stopped { Vec::new() } else { next(&spec) };
            (spec, next)
        } else {
            let mut fields = fields(&args.when);
            // Any name will do.
            fields.insert("queue".to_owned(), "queue".into());
            let spec = schedule_spec(fields, None).map_err(Failure::usage)?;
            let next = next(&spec);
            (spec, next)
        };
        let next = next.into_iter();
        write(&if args.json {
            json_line(&json!({"next": next.map(shown).collect::<Vec<_>>()}))
        } else {
            next.map(|instant| local(Some(&spec), instant) + "\n").collect()
        })?;
        Ok(ExitCode::SUCCESS)
    }

    async fn run_now(&self, args: &ScheduleNamed) -> Result<ExitCode, Failure> {
        let schedules = self.open_for(&args.name).await?;
        let sent = schedules.run_now(&args.name).await.map_err(|error| {
            let failure = Failure::from(error);
            if failure.is_unknown() { failure.hint(MAY_HAVE_RUN) } else { failure }
        })?;
        let sent = sent.ok_or_else(|| unknown(&args.name))?;
        let id = sent.id.to_string();
        let created = matches!(sent.outcome, Enqueued::Created { .. });
        write(&if args.json {
            let outcome = if created { "sent" } else { "not_sent" };
            json_line(&json!({"name": args.name, "id": id, "outcome": outcome}))
        } else if created {
            format!("{}: sent as {}\n", harmless_line(&args.name), harmless_line(&id))
        } else {
            format!(
                "{}: not sent, the message {} is not finished\n",
                harmless_line(&args.name),
                harmless_line(&id)
            )
        })?;
        Ok(if created { ExitCode::SUCCESS } else { ExitCode::from(SOME_BAD) })
    }

    async fn run(&self, args: &ScheduleRun) -> Result<ExitCode, Failure> {
        let schedules = self.open_by(self.target.connect_to_work()?).await?;
        if schedules.queue().stats().await.is_ok_and(|stats| stats.paused) {
            eprintln!(
                "delayline: the queue of schedules is paused; nothing is sent until it is resumed"
            );
        }
        let worker = schedules.worker().build()?;
        stop_on_signals(worker.handle(), GRACE)?;
        let summary = worker.run(schedules.handler()).await;
        write(&if args.json {
            format!("{}\n", json!({"handled": summary.snoozed}))
        } else {
            format!("handled {} due schedules\n", summary.snoozed)
        })?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Prints the outcome for a schedule, if there is one of this name.
fn changed(args: &ScheduleNamed, known: bool, word: &str) -> Result<ExitCode, Failure> {
    if !known {
        if args.json {
            write(&json_line(&json!({"name": args.name, "outcome": "not_found"})))?;
        }
        return Err(unknown(&args.name));
    }
    write(&if args.json {
        json_line(&json!({"name": args.name, "outcome": word}))
    } else {
        format!("{}: {word}\n", harmless_line(&args.name))
    })?;
    Ok(ExitCode::SUCCESS)
}

fn unknown(name: &str) -> Failure {
    Failure::input(format!("there is no schedule {}", harmless_line(name)))
        .hint("`delayline schedule list` lists them; an owner's are named OWNER/NAME")
}

fn fields(when: &When) -> Map<String, Value> {
    let all = [("cron", &when.cron), ("zone", &when.zone), ("every", &when.every)];
    let given = all.into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?)));
    given.map(|(name, value)| (name.to_owned(), value.into())).collect()
}

/// The instant in the time zone of a schedule.
fn local(spec: Option<&Spec>, instant: SystemTime) -> String {
    let zone = spec.and_then(Spec::zone).and_then(|zone| Zone::named(zone).ok());
    match (zone.filter(|zone| !zone.is_utc()), Timestamp::try_from(instant)) {
        (Some(zone), Ok(instant)) => zone.shown(instant),
        _ => shown(instant),
    }
}

fn shown(instant: SystemTime) -> String {
    Timestamp::try_from(instant).unwrap_or(Timestamp::MAX).to_string()
}

/// How long a send may take after a signal.
const GRACE: Duration = Duration::from_secs(20);
/// The id has the time of the server, so a repeat has another one.
const MAY_HAVE_RUN: &str = "it may have been sent, under an id like NAME@INSTANT.now, and a repeat \
                            may send another message; `delayline list` shows those that wait";
