//! `delayline import`.

mod layout;
mod source;

use std::collections::BTreeMap;
use std::process::ExitCode;

use bytes::Bytes;
use delayline::{Enqueued, MessageId, NewMessage, Queue, Raw, Schedule, Timestamp};
use delayline_json::{harmless_line, rfc3339};
use indicatif::ProgressBar;
use ring::digest::{SHA256, digest};
use serde_json::json;

use self::layout::{Content, Layout, Place};
use self::source::{Entry, Source};
use crate::args::{How, Import, Target};
use crate::confirm::{confirm, number};
use crate::failure::{Failure, SOME_BAD};
use crate::print::write;
use crate::progress;
use crate::signals::Signals;

/// Messages that are read, sent and removed together: some hundred, since each may have 1 MiB.
const PAGE: u64 = 100;

pub(crate) async fn run(target: &Target, args: Import) -> Result<ExitCode, Failure> {
    let how = args.from.how();
    let mut layout = Layout::of(&args.from);
    let source = Source::open(target, how.from_url.as_deref().unwrap_or(&target.url)).await?;
    source.find_consumers(&mut layout).await?;
    source.check_payloads(&layout).await?;
    let mut total = 0;
    for place in &layout.places {
        total += source.count(place).await?;
    }
    if total > 0 && !how.dry_run && !how.yes {
        let keys: Vec<_> = layout.places.iter().map(|place| place.key.as_str()).collect();
        let (count, queue) = (number(total, "message"), target.queue()?);
        let deed = format!("move {count} from {} to the queue {queue}", keys.join(", "));
        confirm(&harmless_line(&deed), true)?;
    }
    let queue =
        if how.dry_run { None } else { Some(target.open().await?.durability(how.durability)) };
    let mut import = Move { layout, source, queue, counts: Counts::default() };
    let bar = progress::messages(total);
    let result = import.all(&bar).await;
    bar.finish_and_clear();
    import.counts.tell(how)?;
    result?;
    let code = if import.counts.left == 0 { ExitCode::SUCCESS } else { SOME_BAD.into() };
    Ok(code)
}

/// From there to here.
struct Move {
    layout: Layout,
    source: Source,
    /// `None` in a dry run.
    queue: Option<Queue<Bytes, Raw>>,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    /// Accepted for the first time; in a dry run, those that would be sent.
    created: u64,
    /// Accepted before, by an import that was interrupted.
    duplicate: u64,
    /// Not imported, and still in the old queue.
    left: u64,
    /// Why they were left.
    reasons: BTreeMap<&'static str, u64>,
    /// The earliest and the latest due time.
    due: Option<(Timestamp, Timestamp)>,
}

impl Move {
    async fn all(&mut self, bar: &ProgressBar) -> Result<(), Failure> {
        let mut signals = Signals::listen()?;
        for place in self.layout.places.clone() {
            // Messages that stay are passed over.
            let mut skip = 0;
            loop {
                let entries = self.source.entries(&self.layout, &place, skip, PAGE).await?;
                let count = entries.len() as u64;
                skip += self.page(&place, entries, bar).await?;
                bar.inc(count);
                if count < PAGE || place.kind == layout::Kind::Set {
                    break;
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

    /// Sends the messages and removes those that the queue has. Returns how many stay.
    async fn page(
        &mut self,
        place: &Place,
        entries: Vec<Entry>,
        bar: &ProgressBar,
    ) -> Result<u64, Failure> {
        let count = entries.len() as u64;
        let (mut members, mut messages) = (Vec::new(), Vec::new());
        for entry in entries {
            let member = entry.member.clone();
            match self.message(place, entry) {
                Ok(message) => {
                    members.push(member);
                    messages.push(message);
                }
                Err(reason) => self.counts.leave(&member, reason, bar),
            }
        }
        let Some(queue) = &self.queue else {
            self.counts.created += messages.len() as u64;
            return Ok(count);
        };
        let mut removable = Vec::new();
        let mut failure = None;
        for (member, sent) in members.into_iter().zip(queue.send_many(messages).await) {
            match sent.map(|sent| sent.outcome) {
                Ok(
                    Enqueued::Created { .. }
                    | Enqueued::Updated { .. }
                    | Enqueued::Following { .. },
                ) => self.counts.created += 1,
                Ok(Enqueued::Duplicate { .. }) => self.counts.duplicate += 1,
                Ok(Enqueued::Conflict { .. }) => {
                    self.counts.leave(
                        &member,
                        "the queue knows its id with different content",
                        bar,
                    );
                    continue;
                }
                Err(error) => {
                    failure.get_or_insert(error);
                    continue;
                }
            }
            removable.push(member);
        }
        // Also if a part was not sent.
        self.source.remove(&self.layout, place, &removable).await?;
        match failure {
            None => Ok(count - removable.len() as u64),
            Some(error) => Err(Failure::from(error).hint(AGAIN)),
        }
    }

    /// The message to send for one of the old queue, or why there is none.
    fn message(&mut self, place: &Place, entry: Entry) -> Result<NewMessage, &'static str> {
        let due = entry.due?;
        let payload = entry.payload.ok_or("it has no payload")?;
        let named_by_its_id =
            matches!(self.layout.content, Content::Field { .. } | Content::String { .. });
        let own_id = MessageId::new(entry.member.clone()).ok().filter(|_| named_by_its_id);
        let id = match own_id {
            Some(id) => id,
            None => derived_id(&place.key, &entry.member)?,
        };
        let mut message = NewMessage::new(id, payload);
        message.schedule = Schedule::At(due);
        message.max_failures = entry.max_failures.unwrap_or(message.max_failures);
        message.validate().map_err(|_| "its payload is larger than 1 MiB")?;
        let (first, last) = self.counts.due.unwrap_or((due, due));
        self.counts.due = Some((first.min(due), last.max(due)));
        Ok(message)
    }
}

const AGAIN: &str =
    "what the queue has accepted was removed from the old one; import again to move the rest";

/// The same for the same member of the same key, so that an import can be repeated.
fn derived_id(key: &str, member: &Bytes) -> Result<MessageId, &'static str> {
    let text = [key.as_bytes(), b"\0", member].concat();
    let hex: String =
        digest(&SHA256, &text).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    MessageId::try_from(hex).map_err(|_| "it has no id")
}

impl Counts {
    fn leave(&mut self, member: &Bytes, reason: &'static str, bar: &ProgressBar) {
        /// Of each reason that many are named.
        const NAMED: u64 = 10;
        self.left += 1;
        let count = self.reasons.entry(reason).or_default();
        *count += 1;
        if *count <= NAMED {
            let start: String = String::from_utf8_lossy(member).chars().take(64).collect();
            bar.suspend(|| eprintln!("left {}: {reason}", harmless_line(&start)));
        }
    }

    fn tell(&self, how: &How) -> Result<(), Failure> {
        let Self { created, duplicate, left, .. } = self;
        if how.json {
            let instants = self.due.map(|(first, last)| [rfc3339(first), rfc3339(last)]);
            let counts = json!({
                "created": created, "duplicate": duplicate, "left": left,
                "left_because": self.reasons, "due": instants, "dry_run": how.dry_run,
            });
            return write(&format!("{counts}\n"));
        }
        if how.dry_run {
            eprintln!("would import {created}, leave {left}");
        } else {
            eprintln!("created {created}, duplicate {duplicate}, left {left}");
        }
        for (reason, count) in &self.reasons {
            eprintln!("left {count}: {reason}");
        }
        if let Some((first, last)) = self.due {
            eprintln!("due from {} to {}", rfc3339(first), rfc3339(last));
        }
        Ok(())
    }
}
