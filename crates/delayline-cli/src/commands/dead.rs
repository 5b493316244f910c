//! `delayline dead`.

mod action;

use std::process::ExitCode;
use std::time::Duration;

use delayline::admin::Listed;
use delayline::codec::Raw;
use delayline::message::{MessageInfo, Status};
use delayline::{Bytes, Found, MessageId, Queue};
use delayline_admin::{Group, Groups, LetterFilter, Letters, RateLimit};
use delayline_json::{Cursor, harmless_line};
use serde_json::json;

use self::action::Action;
use super::durations::delay_of;
use super::list::{self, Output, Pages};
use crate::args::{DeadGroups, DeadList, DeadVerb, Filter, Selection, State, Target};
use crate::confirm::{confirm, number};
use crate::failure::Failure;
use crate::print::{columns, json_line, write};
use crate::report::{Fate, NOT_FOUND, Report};
use crate::signals::Signals;
use crate::{input, progress};

pub(crate) async fn run(target: &Target, verb: DeadVerb) -> Result<ExitCode, Failure> {
    match verb {
        DeadVerb::List(args) => show(target, args).await,
        DeadVerb::Groups(args) => groups(target, args).await,
        DeadVerb::Redrive(args) => {
            let delay = args.delay.as_deref().map(|it| delay_of("--delay", it)).transpose()?;
            let delay = delay.unwrap_or(Duration::ZERO);
            work(target, args.selection, Action::Redrive { delay }, args.rate).await
        }
        DeadVerb::Purge(args) => work(target, args.selection, Action::Purge, None).await,
    }
}

async fn show(target: &Target, args: DeadList) -> Result<ExitCode, Failure> {
    let mut start = list::start(&args.paging, &DEAD)?;
    let filter = read(&args.filter)?;
    let queue = target.open_known().await?;
    let wanted = filter.at(queue.server_time().await?);
    let position = wanted.start().max(start.and_then(|cursor| cursor.position));
    if position.is_some() {
        start = Some(Cursor { status: Listed::Dead, position });
    }
    let passes = |letter: &MessageInfo| wanted.matches(letter);
    let passes = (!wanted.is_empty()).then_some(&passes as list::Passes<'_>);
    let pages = Pages::new(&queue, &DEAD, start, args.paging.most(), passes);
    list::print(pages, Output::new(args.json, &args.paging)).await
}

async fn groups(target: &Target, args: DeadGroups) -> Result<ExitCode, Failure> {
    let filter = read(&args.filter)?;
    let queue = target.open_known().await?;
    let listing = queue.dead_letters().await?;
    let wanted = filter.at(listing.until().unwrap_or_default());
    let mut listing = listing.matching(wanted);
    let mut groups = Groups::new(MOST_GROUPS);
    while let Some(page) = listing.next_page().await? {
        page.iter().for_each(|letter| groups.add(letter));
    }
    let list = groups.sorted(args.order.into());
    write(&if args.json {
        list.iter().map(|group| json_line(&group.json())).collect()
    } else {
        let heads = &["REASON", "LETTERS", "FIRST", "LAST", "LATEST", "ERROR"];
        columns(heads, list.iter().map(row))
    })?;
    if groups.ungrouped() > 0 {
        eprintln!("{} in further groups", number(groups.ungrouped(), "dead letter"));
    }
    Ok(ExitCode::SUCCESS)
}

fn row(group: &Group) -> Vec<String> {
    vec![
        group.reason.name().to_owned(),
        group.letters.to_string(),
        group.first.to_string(),
        group.last.to_string(),
        group.latest.to_string(),
        harmless_line(&group.error),
    ]
}

async fn work(
    target: &Target,
    selection: Selection,
    action: Action,
    rate: Option<u32>,
) -> Result<ExitCode, Failure> {
    let name = target.queue()?.to_owned();
    let filter = read(&selection.filter)?;
    let ids = input::ids(selection.ids.clone())?;
    if !selection.all {
        if action == Action::Purge && !selection.yes && !selection.dry_run {
            ask(action, number(ids.len() as u64, "dead letter"), &name)?;
        }
        let queue = target.open_known().await?;
        return named(&queue, ids, &selection, action, rate).await;
    }
    let queue = target.open_known().await?;
    let listing = queue.dead_letters().await?;
    let wanted = filter.at(listing.until().unwrap_or_default());
    let most = selection.limit.unwrap_or(u64::MAX);
    if selection.dry_run || !selection.yes {
        let count = Letters::new(listing.clone(), wanted.clone(), most).count().await?;
        if selection.dry_run {
            return would(action, count, selection.json);
        }
        if count > 0 {
            ask(action, number(count, "dead letter"), &name)?;
        }
    }
    all(&queue, Letters::new(listing, wanted, most), action, rate, selection.json).await
}

/// The filters of the command line.
fn read(args: &Filter) -> Result<LetterFilter, Failure> {
    let reasons = args.reason.iter().copied().map(Into::into).collect();
    let (before, after) = (args.died_before.as_deref(), args.died_after.as_deref());
    let filter = LetterFilter::new(reasons, args.error.clone(), before, after);
    let filter =
        filter.map_err(|why| Failure::usage(format!("--{}", why.replacen('_', "-", 1))))?;
    Ok(filter.error_like(args.error_like.clone()).group(args.group.clone()))
}

fn ask(action: Action, what: String, queue: &str) -> Result<(), Failure> {
    confirm(&format!("{} {what} of the queue {queue}", action.verb()), true)
}

fn would(action: Action, count: u64, as_json: bool) -> Result<ExitCode, Failure> {
    let word = action.done();
    write(&if as_json {
        let name = format!("would_be_{word}");
        format!("{}\n", json!({name: count}))
    } else {
        format!("{} would be {word}\n", number(count, "dead letter"))
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The named letters, each with its own result.
async fn named(
    queue: &Queue<Bytes, Raw>,
    ids: Vec<MessageId>,
    selection: &Selection,
    action: Action,
    rate: Option<u32>,
) -> Result<ExitCode, Failure> {
    let mut report = Report::new(selection.json, &[]);
    if selection.dry_run {
        for id in ids {
            let fate = match queue.get(id.clone()).await? {
                Found::Live(message) if message.info.state.status() == Status::Dead => {
                    Fate::done(action.would())
                }
                Found::Unknown => NOT_FOUND,
                Found::Finished(status) => Fate::not_done(status.name()),
                _ => Fate::not_done("not_dead"),
            };
            report.tell(&id, fate)?;
        }
        return Ok(report.code());
    }
    let mut signals = Signals::listen()?;
    let mut rate_limit = RateLimit::new(rate);
    for batch in ids.chunks(rate_limit.batch()) {
        tokio::select! {
            biased;
            () = signals.next() => return Err(interrupted()),
            () = rate_limit.wait() => {}
        }
        let fates = action.apply(queue, batch.to_vec()).await?;
        report.tell_all(queue, batch, fates).await?;
    }
    Ok(report.code())
}

/// All letters that are wanted, counted.
async fn all(
    queue: &Queue<Bytes, Raw>,
    mut letters: Letters<'_>,
    action: Action,
    rate: Option<u32>,
    as_json: bool,
) -> Result<ExitCode, Failure> {
    let mut signals = Signals::listen()?;
    let mut report = Report::new(as_json, &[action.done()]);
    let mut rate_limit = RateLimit::new(rate);
    let bar = progress::messages(queue.stats().await?.dead);
    let result = loop {
        tokio::select! {
            biased;
            () = signals.next() => break Err(interrupted()),
            () = rate_limit.wait() => {}
        }
        let fates = async {
            let ids = letters.next(rate_limit.batch()).await?;
            if ids.is_empty() { Ok(Vec::new()) } else { action.apply(queue, ids).await }
        };
        match fates.await {
            Ok(fates) if fates.is_empty() => break Ok(()),
            Ok(fates) => fates.into_iter().for_each(|fate| report.count(fate)),
            Err(failure) => break Err(failure),
        }
        bar.set_position(letters.taken());
    };
    bar.finish_and_clear();
    report.summary()?;
    result.map(|()| report.code())
}

fn interrupted() -> Failure {
    Failure::input("interrupted; the changes made so far remain")
}

/// More than anyone reads.
const MOST_GROUPS: usize = 1_000;

const DEAD: [State; 1] = [State::Dead];
