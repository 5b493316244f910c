//! `delayline import`.

mod counts;
mod ids;
mod layout;
mod live;
mod own;
mod source;

use std::collections::HashMap;
use std::process::ExitCode;

use bytes::Bytes;
use delayline::backend::{NewMessage, Schedule};
use delayline::codec::Raw;
use delayline::{Connection, Enqueued, MessageId, Queue};
use delayline_json::harmless_line;
use indicatif::ProgressBar;

use self::counts::{Counts, unnamed};
use self::ids::derived_id;
use self::layout::{Layout, Place};
use self::live::Follow;
use self::source::{Entry, FIRST_PAGE, Source, next_page};
use crate::args::{How, Import, OldQueue, Origin, Target};
use crate::confirm::{confirm, number};
use crate::failure::Failure;
use crate::progress;
use crate::signals::Signals;

pub(crate) async fn run(target: &Target, args: Import) -> Result<ExitCode, Failure> {
    let from = args.from;
    let how = match &from {
        Origin::Queue { how, .. } => how,
        Origin::Other(from) => from.how(),
    };
    let target = &Target { other_url: how.from_url.clone(), ..target.clone() };
    refuse_memory(target, how)?;
    target.queue()?;
    target.confirms("--durability", how.durability)?;
    let from = match &from {
        Origin::Queue { name, live, how } => return own::run(target, name, live, how).await,
        Origin::Other(from) => from,
    };
    let interval = from.live().map(|live| live::check(target, how, live)).transpose()?;
    let mut layout = Layout::of(from);
    layout.check()?;
    let source = Source::open(target, how.from_url.as_deref().unwrap_or(&target.url)).await?;
    // Opening a directory would create it.
    let connection = match target.is_new_directory()? {
        true => None,
        false => Some(target.connection().await?),
    };
    let queue = match &connection {
        Some(connection) => open_unchanged(target, connection).await?,
        None => {
            target.open_on(target.connect_to("memory:", target.driver)?, target.queue()?).await?
        }
    };
    source.find_consumers(&mut layout).await?;
    source.check_payloads(&layout).await?;
    let mut total = 0;
    for place in &layout.places {
        total += source.count(place).await?;
    }
    let keys: Vec<_> = layout.places.iter().map(|place| place.key.as_str()).collect();
    let keys = keys.join(", ");
    if total == 0 && interval.is_none() {
        eprintln!("no messages in {}", harmless_line(&keys));
    }
    if (total > 0 || interval.is_some()) && !how.dry_run && !how.yes {
        let (count, queue) = (number(total, "message"), target.queue()?);
        let more = if interval.is_some() { ", and entries added from now on," } else { "" };
        let deed = format!("move {count}{more} from {keys} to the queue {queue}");
        confirm(&harmless_line(&deed), true)?;
    }
    let queue = match &connection {
        _ if how.dry_run => queue,
        Some(connection) => target.open_in(connection).await?.durability(how.durability),
        None => target.open().await?.durability(how.durability),
    };
    let followed = live::followed(from);
    if let (Some(of), Some(interval), Some(live)) = (followed, interval, from.live()) {
        source.check_following(&of).await?;
        let (until_empty, counts) = (live.until_empty, Counts { live: true, ..Counts::default() });
        let left = HashMap::new();
        let mut follow = Follow { of, source, queue, until_empty, interval, counts, left };
        let bar = progress::endless();
        let result = follow.run(&bar).await;
        bar.finish_and_clear();
        follow.counts.tell(how)?;
        return result.map(|()| follow.counts.code());
    }
    if !how.dry_run {
        if let OldQueue::Zset { key, .. } = from {
            source.check_unfollowed(key).await?;
        }
        source.check_removal(&layout).await?;
    }
    let (dry_run, counts) = (how.dry_run, Counts::default());
    let mut import = Move { layout, source, queue, dry_run, counts, unremoved: 0 };
    let bar = progress::messages(total);
    let result = import.all(&bar).await;
    bar.finish_and_clear();
    import.counts.tell(how)?;
    result.map(|()| import.counts.code())
}

/// Opens the queue for a dry run or before a question: otherwise the number of shards is stored.
async fn open_unchanged(
    target: &Target,
    connection: &Connection,
) -> Result<Queue<Bytes, Raw>, Failure> {
    match connection.shards_of(target.queue()?).await? {
        Some(_) => target.open_in(connection).await,
        None => target.open_as_stored(connection).await,
    }
}

/// Refuses a queue that ends with this command.
fn refuse_memory(target: &Target, how: &How) -> Result<(), Failure> {
    if target.is_memory() && !how.dry_run {
        let sentence = "a queue in memory is gone when this command ends, and so are its messages";
        return Err(Failure::usage(sentence).hint("nothing was done; --url names a server"));
    }
    Ok(())
}

/// From there to here.
struct Move {
    layout: Layout,
    source: Source,
    queue: Queue<Bytes, Raw>,
    dry_run: bool,
    counts: Counts,
    /// Messages that were created, and whose page has to be read again.
    unremoved: u64,
}

impl Move {
    async fn all(&mut self, bar: &ProgressBar) -> Result<(), Failure> {
        let mut signals = Signals::listen()?;
        for place in self.layout.places.clone() {
            // Messages that stay are passed over.
            let (mut skip, mut changed, mut page) = (0, 0, FIRST_PAGE);
            loop {
                let entries = self.source.entries(&self.layout, &place, skip, page).await?;
                let (count, asked) = (entries.len() as u64, page);
                let next = next_page(&entries);
                match self.page(&place, entries, bar).await? {
                    Some(left) => {
                        (skip, changed, page) = (skip + left, 0, next);
                        bar.inc(count);
                        if count < asked {
                            break;
                        }
                    }
                    None if changed < MOST_CHANGES => changed += 1,
                    None => {
                        self.counts.created += self.unremoved;
                        let sentence =
                            format!("other clients still change {} of the old queue", place.key);
                        return Err(Failure::input(sentence).hint(STILL_USED));
                    }
                }
                tokio::select! {
                    biased;
                    () = signals.next() => return Err(Failure::input("interrupted").hint(AGAIN)),
                    () = std::future::ready(()) => {}
                }
            }
        }
        Ok(())
    }

    /// Sends the messages and removes the accepted ones. Returns how many stay; `None` if others
    /// have changed the old queue meanwhile, and the page has to be read again.
    async fn page(
        &mut self,
        place: &Place,
        entries: Vec<Entry>,
        bar: &ProgressBar,
    ) -> Result<Option<u64>, Failure> {
        let (count, before) = (entries.len() as u64, self.counts.clone());
        let (mut members, mut messages) = (Vec::new(), Vec::new());
        for entry in entries {
            let (member, score) = (entry.member.clone(), entry.score);
            match self.message(place, entry) {
                Ok(message) => {
                    members.push(member);
                    messages.push(message);
                }
                Err(reason) if self.layout.content.has_ids() => {
                    self.counts.leave(&member, reason, bar);
                }
                Err(reason) => self.counts.leave(&unnamed(&member, score), reason, bar),
            }
        }
        if self.dry_run {
            self.counts.created += messages.len() as u64;
            return Ok(Some(count));
        }
        let (mut created, mut duplicate) = (0, 0);
        let mut removable = Vec::new();
        let mut failure = None;
        for (member, sent) in members.into_iter().zip(self.queue.send_many(messages).await) {
            let sent = match sent {
                Ok(sent) => sent,
                Err(error) => {
                    failure.get_or_insert(error);
                    continue;
                }
            };
            match sent.outcome {
                Enqueued::Created { .. }
                | Enqueued::Updated { .. }
                | Enqueued::Following { .. } => created += 1,
                Enqueued::Duplicate { .. } if sent.is_accepted() => duplicate += 1,
                _ => {
                    let reason = if sent.is_conflict() { OTHER_CONTENT } else { NOT_DELIVERED };
                    self.counts.leave(sent.id.as_bytes(), reason, bar);
                    continue;
                }
            }
            removable.push(member);
        }
        // Also if a part was not sent.
        let removed = self.source.remove(&self.layout, place, &removable).await;
        if matches!(removed, Ok(false)) {
            self.counts = before;
            self.unremoved += created;
            return Ok(None);
        }
        let again = std::mem::take(&mut self.unremoved).min(duplicate);
        self.counts.created += created + again;
        self.counts.duplicate += duplicate - again;
        removed?;
        match failure {
            None => Ok(Some(count - removable.len() as u64)),
            Some(error) => Err(Failure::from(error).hint(AGAIN)),
        }
    }

    /// The message to send for one of the old queue, or why there is none.
    fn message(&mut self, place: &Place, entry: Entry) -> Result<NewMessage, &'static str> {
        let due = entry.due?;
        let payload = entry.payload.ok_or("it has no payload")?;
        let max_failures = entry.max_failures?;
        let own_id =
            MessageId::new(entry.member.clone()).ok().filter(|_| self.layout.content.has_ids());
        let id = match own_id {
            Some(id) => id,
            None => derived_id(&place.key, &entry.member, entry.score)?,
        };
        let mut message = NewMessage::new(id, payload);
        message.schedule = Schedule::At(due);
        message.max_failures = max_failures.unwrap_or(message.max_failures);
        message.validate().map_err(|_| "it is not within the limits of a message")?;
        self.counts.due_at(due);
        Ok(message)
    }
}

/// How often a page is read again because others have changed the old queue.
const MOST_CHANGES: u32 = 10;

const AGAIN: &str =
    "accepted messages were removed from the old queue; import again to move the rest";
const STILL_USED: &str = "messages of the last page are in both queues; stop the old producers and \
                          consumers, then import again";
const OTHER_CONTENT: &str = "the queue knows its id with different content";
const NOT_DELIVERED: &str = "the queue knows its id as dead, cancelled or deleted";
