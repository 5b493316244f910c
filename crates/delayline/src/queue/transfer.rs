//! Moving the messages of one queue to another.
//!
//! A message must not be delivered by both queues, and no operation spans both. So a message is
//! *set aside* first: a reschedule, which fails if a worker holds the message, makes it due
//! thousands of years later than it was. Then no worker takes it while it is sent to the other
//! queue and cancelled in this one. The original due time is part of the new one, and so is whether
//! the other queue knew the message before: if not, and if it does later, a transfer has sent it.
//! So a process that continues after a crash needs no other record.

mod aside;

use std::collections::{HashMap, HashSet, VecDeque};

use delayline_core::limits::{MAX_PAGE, MAX_UPDATE_BYTES};
use delayline_core::{
    Cancelled, Claim, ClaimId, Completion, ConsumerName, Enqueued, ErrorClass, FinishedIds, Known,
    List, Message, MessageId, MessageInfo, MessageState, Millis, NewMessage, Op, Position, Reply,
    Reschedule, Rescheduled, Schedule, Status, Timestamp, Update, UpdateContent, UpdateDue,
    UpdateToken, Violation,
};
use uuid::Uuid;
use xxhash_rust::xxh3::Xxh3;

use super::Queue;
use super::batch::send_all;
use super::lookups::{completions, look_up};
use crate::Error;
use crate::after::{Member, Moved, Waiting, wire};
use crate::client::Client;
use crate::shards::is_record;

/// Moves the waiting messages of one queue to another, page by page. Created by
/// [`Queue::transfer_to`].
///
/// A message keeps its id, payload, headers, group, priority, due time, expiry and limits. Its
/// failures and crashes count from 0 again, as after a redrive. So does the time since it was sent:
/// a later [debounce](crate::Draft::debounce) has its bound from the move on. It leaves its queue
/// once the other one has accepted it, and in between no queue delivers it. Workers of both queues
/// can run.
///
/// **After a crash**, up to one page of messages is set aside: they are due between the years 9075
/// and 9825. Another transfer to the same queue continues with them, and takes every message that
/// is due then for one of them. Messages that were set aside are neither lost nor delivered twice
/// if that happens while the other queue remembers their ids, for at least an hour.
///
/// **A message that waits for others** ([`Draft::after`](crate::Draft::after)) is set aside until
/// they have moved or ended. The [limit](crate::Draft::wait_at_most) of its wait stays that of its
/// send, and after a failure it does not wait again for members that are forgotten.
/// But a member that ends in this queue wakes it: if a worker of this queue then checks it before
/// the next pass, it sees members that have moved as cancelled. If messages wait for others, stop
/// the workers of this queue first.
///
/// **What stays**, with the reason in [`left`](Self::left): messages with a checkpoint, which only
/// a worker can store, and messages whose id the other queue knows with different content or as
/// purged. A message that an interrupted transfer has sent, and that was changed, cancelled or
/// purged in the other queue, stays set aside: cancel it here as well.
///
/// Leased messages stay until their leases end, and dead letters until they are redriven.
/// Pauses, limits, results and throttles are not moved.
///
/// A change of a message at the moment of its move is lost. So programs that update, reschedule or
/// cancel by id, and programs that send messages that wait for others, must use the other queue
/// first.
///
/// ```
/// # use delayline::Queue;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), delayline::Error> {
/// let connection = delayline::connect("memory:").await?;
/// let old: Queue<u64> = connection.queue("orders").await?;
/// let new: Queue<u64> = connection.queue("orders-16").shards(16).await?;
/// old.send(&1234).await?;
///
/// let mut transfer = old.transfer_to(&new)?;
/// while transfer.pass().await? > 0 {}
/// assert_eq!((old.stats().await?.ready, new.stats().await?.ready), (0, 1));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Transfer {
    from: Client,
    to: Client,
    stage: Stage,
    moved: u64,
    left: Left,
    /// What the pass in progress has left.
    left_now: Left,
}

/// Messages that stay, with the sequence number and the reason.
type Left = HashMap<MessageId, (u64, &'static str)>;

/// What the next page belongs to.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// Messages that wait for others are set aside, before any of these have gone.
    Prepare(Status, Option<Position>),
    Move(Status, Option<Position>),
}

/// One message of a page.
#[derive(Debug)]
struct Item {
    message: Box<Message>,
    /// Its due time before it was set aside.
    due: Timestamp,
    /// Whether it was set aside before this page, so that a transfer may have sent it.
    was_aside: bool,
}

/// The due times of a message before it was set aside, and since.
#[derive(Clone, Copy, Debug)]
struct Aside {
    before: Timestamp,
    due: Timestamp,
    was_aside: bool,
}

/// What happens to a message that was set aside.
enum Verdict {
    Send(Box<NewMessage>),
    /// It stays set aside, until a later pass.
    Wait,
    Leave(&'static str),
}

impl<T: ?Sized, C> Queue<T, C> {
    /// Creates a transfer of the waiting messages of this queue to another one, of this connection
    /// or another. Messages are sent with the [durability](Self::durability) of the other queue.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if it is the same queue.
    pub fn transfer_to<U: ?Sized, D>(&self, to: &Queue<U, D>) -> Result<Transfer, Error> {
        let (from, to) = (self.client().clone(), to.client().clone());
        let is_same = from.siblings().is(to.siblings()) && from.queue_name() == to.queue_name();
        // Strays are moved into the shards of the same queue.
        if is_same && from.shards() == to.shards() || from.is(&to) {
            return Err(same_queue(&to));
        }
        let stage = Stage::Prepare(Status::Ready, None);
        Ok(Transfer { from, to, stage, moved: 0, left: Left::new(), left_now: Left::new() })
    }
}

impl Transfer {
    /// Moves all messages that are waiting now, and returns how many it has moved. Messages that
    /// were leased can be moved by a later pass.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the next call continues. Until then, messages of up to one page
    /// may be set aside.
    ///
    /// # Errors
    ///
    /// Like [`page`](Self::page).
    pub async fn pass(&mut self) -> Result<u64, Error> {
        let before = self.moved;
        while !self.page().await? {}
        Ok(self.moved - before)
    }

    /// Moves one page of at most 100 messages. Returns `true` if it was the last one of a pass.
    ///
    /// # Cancel safety
    ///
    /// Like [`pass`](Self::pass).
    ///
    /// # Errors
    ///
    /// Like any call to either queue: see [`Queue::patience`](crate::Queue::patience).
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if it is the same queue under another
    /// address. Messages that were certainly not sent are waiting again, as far as their queue can
    /// be reached. Call again to continue.
    pub async fn page(&mut self) -> Result<bool, Error> {
        if let Stage::Move(Status::Ready, None) = self.stage {
            self.reclaim().await?;
        }
        let (Stage::Prepare(status, after) | Stage::Move(status, after)) = self.stage;
        let list = List::new(status, MAX_PAGE).after(after);
        let Reply::List(page) = self.from.apply(&Op::List(list)).await?.reply else {
            return Err(Error::unexpected_reply());
        };
        let mut ids = HashSet::new();
        let mut infos = page.messages;
        // An id can be in two shards. The next pass moves the other message.
        infos.retain(|it| !is_record(it) && ids.insert(it.id.clone()));
        let next = page.next.filter(|next| after != Some(*next));
        if let Stage::Prepare(..) = self.stage {
            self.prepare(infos).await?;
            self.stage = match (next, status) {
                (Some(_), _) => Stage::Prepare(status, next),
                (None, Status::Ready) => Stage::Prepare(Status::Scheduled, None),
                (None, _) => Stage::Move(Status::Ready, None),
            };
            return Ok(false);
        }
        self.move_page(infos).await?;
        let is_last = next.is_none() && status == Status::Scheduled;
        self.stage = match (next, status) {
            (Some(_), _) => Stage::Move(status, next),
            (None, Status::Ready) => Stage::Move(Status::Scheduled, None),
            (None, _) => Stage::Move(Status::Ready, None),
        };
        if is_last {
            self.left = std::mem::take(&mut self.left_now);
        }
        Ok(is_last)
    }

    /// Returns the number of messages that have left their queue, including messages that the
    /// other queue had accepted from an earlier transfer.
    #[must_use]
    pub const fn moved(&self) -> u64 {
        self.moved
    }

    /// Returns the messages that the last complete pass has left, and why, in no order.
    pub fn left(&self) -> impl Iterator<Item = (&MessageId, &'static str)> {
        self.left.iter().map(|(id, (_, reason))| (id, *reason))
    }

    /// Reclaims expired leases, as a claim of a worker does.
    async fn reclaim(&self) -> Result<(), Error> {
        let token = ClaimId::from_bytes(Uuid::new_v4().into_bytes());
        let claim =
            Claim::new(ConsumerName::new("transfer")?, token, 0, Millis::saturating(60_000));
        self.from.apply(&Op::Claim(claim)).await.map(drop)
    }

    /// Sets the messages that wait for others aside.
    async fn prepare(&self, infos: Vec<MessageInfo>) -> Result<(), Error> {
        let others = infos.iter().filter(|it| self.stays(it).is_none());
        let waiting = self.look_up(others.map(|it| &it.id)).await?.into_iter();
        let waiting = waiting.filter(|it| waits_for(it).is_some()).map(|it| it.info);
        self.set_aside(waiting.collect()).await.map(drop)
    }

    async fn move_page(&mut self, infos: Vec<MessageInfo>) -> Result<(), Error> {
        let mut movable = Vec::new();
        for info in infos {
            match self.stays(&info) {
                Some(left) => drop(self.left_now.insert(info.id, left)),
                None => movable.push(info),
            }
        }
        let aside = self.set_aside(movable).await?;
        let (mut back, mut sending) = (Vec::new(), Vec::new());
        let (mut gone, mut failure) = (Vec::new(), None);
        for item in self.contents(aside).await? {
            match self.verdict(&item).await {
                Ok(Verdict::Send(message)) => sending.push((item, *message)),
                Ok(Verdict::Wait) => self.leave(&item, SET_ASIDE),
                Ok(Verdict::Leave(reason)) => {
                    self.leave(&item, reason);
                    back.push(item);
                }
                Err(error) => {
                    back.push(item);
                    failure.get_or_insert(error);
                }
            }
        }
        for (item, result) in self.send(sending, &mut failure).await? {
            match result {
                Ok(Enqueued::Created { .. }) => gone.push(item),
                Ok(Enqueued::Duplicate { status })
                    if ![Status::Cancelled, Status::Purged].contains(&status) =>
                {
                    gone.push(item);
                }
                // A transfer has sent it, and its end or change there counts.
                Ok(_) if item.was_aside && aside::was_unknown(item.message.info.due) => {
                    self.leave(&item, CHANGED);
                }
                Ok(Enqueued::Duplicate { status: Status::Cancelled }) => gone.push(item),
                Ok(outcome) => {
                    let is_purged = matches!(outcome, Enqueued::Duplicate { .. });
                    self.leave(&item, if is_purged { PURGED } else { OTHER_CONTENT });
                    back.push(item);
                }
                Err(error) => {
                    // It may have arrived, so it must not be delivered here.
                    if error.class() != ErrorClass::Ambiguous {
                        back.push(item);
                    }
                    failure.get_or_insert(error);
                }
            }
        }
        let removed = self.remove(&gone).await;
        self.put_back(back).await?;
        removed?;
        failure.map_or(Ok(()), Err)
    }

    /// The sequence number of a message that the last pass has left permanently, and the reason.
    fn stays(&self, info: &MessageInfo) -> Option<(u64, &'static str)> {
        let &(sequence, why) = self.left.get(&info.id)?;
        // An operator who wants a message moved that has changed there gives it another due time
        // here.
        let is_back = aside::before(info.due).is_none();
        let may_move = why == SET_ASIDE || why == CHANGED && is_back;
        (sequence == info.sequence && !may_move).then_some((sequence, why))
    }

    fn leave(&mut self, item: &Item, reason: &'static str) {
        let info = &item.message.info;
        self.left_now.insert(info.id.clone(), (info.sequence, reason));
    }

    /// Sets waiting messages aside, except for messages that have stopped waiting.
    async fn set_aside(&self, infos: Vec<MessageInfo>) -> Result<HashMap<MessageId, Aside>, Error> {
        let mut all = HashMap::new();
        let (mut ids, mut before) = (Vec::new(), Vec::new());
        for MessageInfo { id, due, .. } in infos {
            if aside::is_needed(due) {
                ids.push(id);
                before.push(due);
            } else {
                let before = aside::before(due);
                let was_aside = before.is_some();
                all.insert(id, Aside { before: before.unwrap_or(due), due, was_aside });
            }
        }
        // Before they can be there because of this transfer.
        let known = completions(&self.to, &ids).await?;
        let mut changes = Vec::new();
        for ((id, due), known) in ids.into_iter().zip(before).zip(known) {
            changes.push((id, due, aside::aside(due, &known)?));
        }
        let dues = changes.iter().map(|(id, _, aside)| (id.clone(), *aside));
        let results = self.reschedule(dues.collect()).await?;
        for ((id, due, aside), result) in changes.into_iter().zip(results) {
            if matches!(result, Rescheduled::Done { .. }) {
                all.insert(id, Aside { before: due, due: aside, was_aside: false });
            }
        }
        Ok(all)
    }

    /// Reads messages, in the order of their sequence numbers, except for changed ones.
    async fn contents(&self, mut dues: HashMap<MessageId, Aside>) -> Result<Vec<Item>, Error> {
        let messages = self.look_up(dues.clone().keys()).await?;
        let item = |message: Box<Message>| {
            let aside = dues.remove(&message.info.id)?;
            let is_same = message.info.due == aside.due;
            is_same.then_some(Item { message, due: aside.before, was_aside: aside.was_aside })
        };
        let mut items: Vec<_> = messages.into_iter().filter_map(item).collect();
        // Messages of a group, and of equal due time, keep their order.
        items.sort_by_key(|it| it.message.info.sequence);
        Ok(items)
    }

    /// Reads the waiting ones of these messages.
    async fn look_up(
        &self,
        ids: impl Iterator<Item = &MessageId>,
    ) -> Result<Vec<Box<Message>>, Error> {
        let is_waiting = |message: &Message| {
            matches!(message.info.state, MessageState::Scheduled | MessageState::Ready)
        };
        let found = look_up(&self.from, ids.cloned().collect()).await?.into_iter();
        Ok(found.filter(|it| is_waiting(it)).collect())
    }

    async fn verdict(&self, item: &Item) -> Result<Verdict, Error> {
        let Message { info, headers, payload, checkpoint, .. } = &*item.message;
        if checkpoint.is_some() {
            return Ok(Verdict::Leave(HAS_CHECKPOINT));
        }
        let mut message = NewMessage::new(info.id.clone(), payload.clone())
            .headers(headers.clone())
            .group(info.group.clone())
            .priority(info.priority)
            .schedule(Schedule::At(item.due))
            .expires(info.expires_at.map(Schedule::At))
            .max_failures(info.max_failures)
            .max_crashes(info.max_crashes);
        if let Some(woken) = wire::wakes(headers) {
            match self.seen_from_target(woken.queue.as_ref()) {
                Some(None) if woken.queue.is_some() => {
                    wire::set_wakes(&mut message.headers, &Member::new(None, woken.id))?;
                }
                Some(_) => {}
                None => return Ok(Verdict::Leave(IS_MEMBER)),
            }
        }
        if let Some(read) = waits_for(&item.message) {
            let Some(members) = self.members(&read.waiting.members).await? else {
                return Ok(Verdict::Wait);
            };
            let Some(members) = members else { return Ok(Verdict::Leave(OTHER_SERVER)) };
            message.payload = read.payload;
            let (since, has_failed) = (read.waiting.since(info), read.waiting.has_failed(info));
            let moved = Some(Moved { since, has_failed });
            if wire::write(&Waiting { members, moved, ..read.waiting }, &mut message).is_err() {
                return Ok(Verdict::Leave(NO_HEADER));
            }
        }
        Ok(match message.validate() {
            Ok(()) => Verdict::Send(Box::new(message)),
            Err(Violation::Malformed { .. }) => Verdict::Leave(RESERVED),
            Err(_) => Verdict::Leave(TOO_LARGE),
        })
    }

    /// Returns the queue of a message that another message waits for or wakes, as the target names
    /// it: `Some(None)` for the target itself, which gets the messages of the source; `None` if
    /// messages of the target cannot reach it, or if its messages would not find the moved one.
    fn seen_from_target<'a>(
        &self,
        queue: Option<&'a delayline_core::QueueName>,
    ) -> Option<Option<&'a delayline_core::QueueName>> {
        let is_own = queue.is_none() || queue == self.from.queue_name();
        let is_target = self.is_one_connection() && queue == self.to.queue_name();
        (is_own || is_target).then_some(None)
    }

    fn is_one_connection(&self) -> bool {
        self.from.siblings().is(self.to.siblings())
    }

    /// Returns the members of a waiting message as the target names them. `None` if some of them
    /// have neither moved nor ended; `Some(None)` if the target cannot reach some of them.
    async fn members(&self, members: &[Member]) -> Result<Option<Option<Vec<Member>>>, Error> {
        let is_own = |it: &&Member| self.seen_from_target(it.queue.as_ref()).is_some();
        let own: Vec<_> = members.iter().filter(is_own).map(|it| it.id.clone()).collect();
        let here = completions(&self.from, &own).await?;
        if here.contains(&Completion::Pending) {
            return Ok(None);
        }
        let there = completions(&self.to, &own).await?;
        let mut own = here.into_iter().zip(there);
        let mut seen = Vec::new();
        for member in members {
            let queue = match (is_own(&member).then(|| own.next()).flatten(), &member.queue) {
                (Some((Completion::Unknown, _)), _) => None,
                // It has ended here, and did not move.
                (Some((_, Completion::Unknown)), _) => self.from.queue_name(),
                (Some(_), _) => None,
                (None, queue) => queue.as_ref(),
            };
            if queue.is_some() && !self.is_one_connection() {
                return Ok(Some(None));
            }
            seen.push(Member::new(queue.cloned(), member.id.clone()));
        }
        Ok(Some(Some(seen)))
    }

    /// Sends messages to the target. If it fails then, messages that the target knew are not
    /// returned, and stay set aside.
    async fn send(
        &self,
        sending: Vec<(Item, NewMessage)>,
        failure: &mut Option<Error>,
    ) -> Result<Vec<(Item, Result<Enqueued, Error>)>, Error> {
        let (items, messages): (Vec<_>, Vec<_>) = sending.into_iter().unzip();
        let mut results = self.send_all(messages.iter().cloned().enumerate().collect()).await;
        // The target may be where a message was before, and has left it.
        let is_returning = |&place: &usize| {
            let due = items[place].message.info.due;
            matches!(results[place], Ok(Enqueued::Duplicate { status: Status::Cancelled }))
                && (aside::was_cancelled(due) || aside::before(due).is_none())
        };
        let places: Vec<_> = (0..results.len()).filter(is_returning).collect();
        let again = places.iter().map(|&place| returning(&items[place], messages[place].clone()));
        let again = self.send_all(again.enumerate().collect()).await;
        for (&place, result) in places.iter().zip(again) {
            results[place] = result;
        }
        let mut all: Vec<_> = items.into_iter().zip(results).collect();
        let known = all.iter().filter(|(_, it)| matches!(it, Ok(Enqueued::Duplicate { .. })));
        let known: HashMap<_, _> = known.map(|(item, _)| (&item.message.info.id, item)).collect();
        // The addresses of one server may differ.
        let ids = known.keys().map(|id| (*id).clone()).collect();
        let at_target = match look_up(&self.to, ids).await {
            Ok(messages) => messages,
            Err(error) => {
                failure.get_or_insert(error);
                all.retain(|(_, result)| !matches!(result, Ok(Enqueued::Duplicate { .. })));
                return Ok(all);
            }
        };
        let is_same = |it: &MessageInfo| {
            known.get(&it.id).is_some_and(|item| {
                let here = &item.message.info;
                (here.sequence, here.enqueued_at, here.due) == (it.sequence, it.enqueued_at, it.due)
            })
        };
        if at_target.iter().any(|message| is_same(&message.info)) {
            self.put_back(all.into_iter().map(|(item, _)| item).collect()).await?;
            return Err(same_queue(&self.to));
        }
        Ok(all)
    }

    async fn send_all(
        &self,
        messages: VecDeque<(usize, NewMessage)>,
    ) -> Vec<Result<Enqueued, Error>> {
        let mut results: Vec<_> = messages.iter().map(|_| None).collect();
        send_all(&self.to, messages, false, &mut results).await;
        let result = |it: Option<Result<super::Sent, _>>| {
            it.unwrap_or_else(|| Err(Error::unexpected_reply())).map(|sent| sent.outcome)
        };
        results.into_iter().map(result).collect()
    }

    /// Removes messages that the target has accepted.
    async fn remove(&mut self, items: &[Item]) -> Result<(), Error> {
        if items.is_empty() {
            return Ok(());
        }
        let ids = items.iter().map(|it| it.message.info.id.clone()).collect();
        let Reply::Cancel(results) = self.from.apply(&Op::Cancel(ids)).await?.reply else {
            return Err(Error::unexpected_reply());
        };
        let removed = results.iter().filter(|it| **it == Cancelled::Cancelled).count();
        self.moved += u64::try_from(removed).unwrap_or(u64::MAX);
        Ok(())
    }

    /// Gives messages that stay their due times again.
    async fn put_back(&self, items: Vec<Item>) -> Result<(), Error> {
        let is_aside = |it: &Item| it.due != it.message.info.due;
        let items = items.into_iter().filter(is_aside);
        let dues = items.map(|it| (it.message.info.id, it.due)).collect();
        self.reschedule(dues).await.map(drop)
    }

    async fn reschedule(
        &self,
        dues: Vec<(MessageId, Timestamp)>,
    ) -> Result<Vec<Rescheduled>, Error> {
        if dues.is_empty() {
            return Ok(Vec::new());
        }
        let dues = dues.into_iter().map(|(id, due)| Reschedule::new(id, Schedule::At(due)));
        match self.from.apply(&Op::Reschedule(dues.collect())).await?.reply {
            Reply::Reschedule(results) => Ok(results),
            _ => Err(Error::unexpected_reply()),
        }
    }
}

/// A message that is created although the target knows its id as cancelled. A repetition of the
/// call changes nothing, even if the message has been handled in the meantime: updates have tokens.
fn returning(item: &Item, message: NewMessage) -> NewMessage {
    let info = &item.message.info;
    let message = message.finished_ids(FinishedIds::Reuse);
    if message.content_bytes() > MAX_UPDATE_BYTES {
        return message;
    }
    let mut hasher = Xxh3::new();
    hasher.update(&info.sequence.to_be_bytes());
    hasher.update(&info.enqueued_at.as_ms().to_be_bytes());
    hasher.update(info.id.as_bytes());
    // Not 0.
    let token = UpdateToken::from_bytes((hasher.digest() | 1).to_be_bytes());
    message.known(Known::Update(Update::new(UpdateContent::Keep, UpdateDue::Keep, token)))
}

/// What a message still waits for, if it waits for others.
fn waits_for(message: &Message) -> Option<wire::Read> {
    // A list that cannot be read is moved as it is; a worker reports it.
    let read = wire::read(&message.headers, &message.payload).ok().flatten();
    read.filter(|read| read.ended.is_none())
}

fn same_queue(to: &Client) -> Error {
    let value = to.queue_name().map(ToString::to_string).unwrap_or_default();
    let reason = "a transfer needs two queues, and this is the queue to move from".to_owned();
    Violation::Malformed { what: "the target", value, reason }.into()
}

const SET_ASIDE: &str = "it waits for messages that are still in the old queue, and is set aside";
const CHANGED: &str = "it was changed, cancelled or purged in the new queue during its move, and is \
                       set aside";
const HAS_CHECKPOINT: &str = "it has a checkpoint, which only a worker can store";
const IS_MEMBER: &str = "a message of another queue waits for it";
const OTHER_SERVER: &str = "it waits for messages that the new queue cannot reach";
const TOO_LARGE: &str = "it is larger than a message may be, with the names that it waits for";
const NO_HEADER: &str = "it waits for messages, and has no room for the header of its move";
const RESERVED: &str = "its id is reserved";
const OTHER_CONTENT: &str = "the new queue knows its id with different content";
const PURGED: &str = "the new queue knows its id as purged";
