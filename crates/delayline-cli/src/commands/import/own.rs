//! `delayline import queue`: from another queue of Delayline.

use std::collections::HashSet;
use std::process::ExitCode;

use bytes::Bytes;
use delayline::admin::{QueueName, Stats, Transfer};
use delayline::codec::Raw;
use delayline::{Error, MessageId, Queue};
use delayline_json::harmless_line;
use indicatif::ProgressBar;

use super::counts::Counts;
use super::live::interval;
use crate::args::{How, Live, Target};
use crate::confirm::{confirm, number};
use crate::failure::Failure;
use crate::progress;
use crate::signals::Signals;

pub(super) async fn run(
    target: &Target,
    name: &str,
    live: &Live,
    how: &How,
) -> Result<ExitCode, Failure> {
    let interval = interval(live)?;
    name.parse::<QueueName>().map_err(Error::from)?;
    let is_near = how.from_url.as_ref().is_none_or(|from| *from == target.url);
    let of_itself = is_near && name == target.queue()?;
    let (from, to) = open(target, name, how, of_itself).await?;
    let stats = from.stats().await?;
    // One is the number of shards.
    let waiting = (stats.scheduled + stats.ready).saturating_sub(of_itself.into());
    let mut counts = Counts { live: live.live, ..Counts::default() };
    if how.dry_run {
        counts.created = waiting;
        counts.tell(how)?;
        tell_rest(&stats);
        return Ok(ExitCode::SUCCESS);
    }
    if waiting == 0 && !live.live {
        eprintln!("no waiting messages in {}", harmless_line(name));
    } else if !how.yes {
        let count = number(waiting, "message");
        let more = if live.live { ", and messages sent from now on," } else { "" };
        let queue = target.queue()?;
        confirm(&format!("move {count}{more} from {name} to the queue {queue}"), true)?;
    }
    let transfer = from.transfer_to(&to.durability(how.durability))?;
    let mut import = Import { from, transfer, named: HashSet::new(), counts };
    let bar = if live.live { progress::endless() } else { progress::messages(waiting) };
    let result = import.passes(live, interval, &bar).await;
    bar.finish_and_clear();
    import.counts.created = import.transfer.moved();
    for (_, reason) in import.transfer.left() {
        import.counts.left += 1;
        *import.counts.reasons.entry(reason).or_default() += 1;
    }
    import.counts.tell(how)?;
    result.map_err(|failure| failure.hint(AGAIN))?;
    tell_rest(&import.from.stats().await?);
    Ok(import.counts.code())
}

type Open = Queue<Bytes, Raw>;

/// Opens both queues, over one connection if they are at one place. If they are one queue, the old
/// one consists of the messages that none of its shards has.
async fn open(
    target: &Target,
    name: &str,
    how: &How,
    of_itself: bool,
) -> Result<(Open, Open), Failure> {
    let url = how.from_url.as_deref().unwrap_or(&target.url);
    let connect = target.connect_from(url)?;
    let old = |failure: Failure| failure.about("the old queue");
    target.refuse_new(&connect).map_err(old)?;
    let source = connect.connect().await.map_err(|error| old(target.not_opened(&error)))?;
    let from = source.queue(name);
    let from = if of_itself { from.strays() } else { from };
    let from = from.await.map_err(|error| old(target.not_opened(&error)))?.codec(Raw);
    let applied = from.apply(&delayline::backend::Op::Stats).await?;
    if !delayline_admin::is_known(&source, name, &applied).await? {
        let sentence = format!("there is no queue {}", harmless_line(name));
        return Err(old(Failure::input(sentence)).hint("--from names its server or directory"));
    }
    if of_itself && source.shards_of(name).await?.is_none() {
        let sentence = format!("an import needs two queues, and {name} is the queue to move from");
        return Err(Failure::usage(sentence).hint("--queue names the queue to move to"));
    }
    // Opening would store the number of shards, or create a directory.
    let to = if how.dry_run {
        from.clone()
    } else if url == target.url {
        target.open_in(&source).await?
    } else {
        target.open().await?
    };
    Ok((from, to))
}

struct Import {
    from: Open,
    transfer: Transfer,
    /// The messages that stay and have been named.
    named: HashSet<MessageId>,
    counts: Counts,
}

impl Import {
    /// Until a pass moves nothing, or with `--live` until a signal. Fails at a signal within a
    /// pass: messages may be set aside then.
    async fn passes(
        &mut self,
        live: &Live,
        interval: std::time::Duration,
        bar: &ProgressBar,
    ) -> Result<(), Failure> {
        let mut signals = Signals::listen()?;
        loop {
            let before = self.transfer.moved();
            while !self.transfer.page().await? {
                bar.set_position(self.transfer.moved());
                tokio::select! {
                    biased;
                    () = signals.next() => return Err(Failure::input("interrupted")),
                    () = std::future::ready(()) => {}
                }
            }
            for (id, reason) in self.transfer.left() {
                if self.named.insert(id.clone()) {
                    self.counts.name(id.as_bytes(), reason, bar);
                }
            }
            if self.transfer.moved() > before {
                continue;
            }
            let is_done = live.until_empty && self.from.stats().await?.leased == 0;
            if !live.live || is_done {
                return Ok(());
            }
            tokio::select! {
                biased;
                () = signals.next() => return Ok(()),
                () = tokio::time::sleep(interval) => {}
            }
        }
    }
}

/// Says what stays in the old queue although it is not waiting.
fn tell_rest(stats: &Stats) {
    if stats.leased > 0 {
        let count = number(stats.leased, "message");
        eprintln!("{count} leased by workers: --live moves what they return to the old queue");
    }
    if stats.dead > 0 {
        let count = number(stats.dead, "dead letter");
        eprintln!("{count} in the old queue: redrive there what is to be moved, and import again");
    }
}

const AGAIN: &str = "messages that were being moved are due after the year 9100 until you import \
                     again";
