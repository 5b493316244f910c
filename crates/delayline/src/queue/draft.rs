//! A message to be sent.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use delayline_core::limits::{
    MAX_DELAY_MS, MAX_PAYLOAD_BYTES, MAX_RESULT_RETENTION_MS, MAX_THROTTLE_MS,
};
use delayline_core::{
    FinishedIds, Group, Known, MessageId, NewMessage, Priority, Schedule, Update, UpdateContent,
    UpdateToken, Violation,
};

use super::merge::Merger;
use super::sent::Sent;
use super::update::UpdateDue;
use crate::Error;
use crate::after::wire;
use crate::after::{Member, OnFailure, WAKES, Waiting};
use crate::client::Client;
use crate::error::{message_id, millis, timestamp};
use crate::telemetry::TraceContext;

/// A message to be sent. Created by [`Queue::message`](crate::Queue::message), and sent by
/// [`send`](Self::send) or [`Queue::send_many`](crate::Queue::send_many).
///
/// It remembers the name of its queue. A queue with another name refuses it, before anything is
/// sent.
///
/// By default, it is due at once, has normal priority, a generated id (a UUIDv7) and no headers,
/// and never expires. It becomes a dead letter after 20 failures or 5 expired leases.
///
/// Setters never fail. If a value is outside its limits, [`send`](Self::send) fails before anything
/// is sent, with an error that names the first such value and its limit.
///
/// ```
/// # use std::time::Duration;
/// # use delayline::Queue;
/// # use delayline::message::Priority;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), delayline::Error> {
/// # let orders: Queue<u64> = delayline::connect("memory:").await?.queue("orders").await?;
/// let sent = orders
///     .message(&1234)
///     .id("close-1234")
///     .due_in(Duration::from_secs(30 * 60))
///     .priority(Priority::High)
///     .header("tenant", "acme")
///     .send()
///     .await?;
/// assert!(sent.is_accepted());
///
/// let error = orders.message(&1234).id("").send().await.unwrap_err();
/// assert_eq!(error.to_string(), "the message id is empty");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a draft does nothing until it is sent"]
pub struct Draft {
    pub(super) client: Client,
    merger: Merger,
    pub(super) message: Result<NewMessage, Error>,
    /// Whether the caller chose the id.
    pub(super) named: bool,
    /// The messages that it waits for, if `waits`.
    pub(super) waiting: Waiting,
    waits: bool,
}

impl Draft {
    pub(super) fn new(client: Client, merger: Merger, message: Result<NewMessage, Error>) -> Self {
        Self {
            client,
            merger,
            message: message.and_then(checked),
            named: false,
            waiting: Waiting::new(),
            waits: false,
        }
    }

    /// Changes the message, unless an earlier change has failed.
    fn with(self, change: impl FnOnce(&mut NewMessage)) -> Self {
        self.try_with(|message| {
            change(message);
            Ok(())
        })
    }

    fn try_with(mut self, change: impl FnOnce(&mut NewMessage) -> Result<(), Error>) -> Self {
        if let Ok(message) = &mut self.message
            && let Err(error) = change(message)
        {
            self.message = Err(error);
        }
        self
    }

    /// Sets the message's id: 1 to 128 bytes. Until at least an hour after the message has
    /// finished, sending the same content under the same id again is harmless
    /// ([G15](crate::guarantees#g15)). You need the id to cancel or reschedule the message later.
    pub fn id<I>(mut self, id: I) -> Self
    where
        I: TryInto<MessageId, Error: Into<Error>>,
    {
        self.named = true;
        self.try_with(|message| {
            message.id = message_id(id)?;
            Ok(())
        })
    }

    /// Sets the message's id unless the caller has set one.
    pub(crate) fn or_id(mut self, id: impl FnOnce() -> Result<MessageId, Violation>) -> Self {
        if std::mem::replace(&mut self.named, true) {
            return self;
        }
        self.try_with(|message| {
            message.id = id()?;
            Ok(())
        })
    }

    /// Accepts the message even if a message with its id was recently handled, cancelled or purged.
    /// Use it for ids that recur, such as one reminder per shop.
    ///
    /// A repeated send could then create a second message, if the first was handled in between. So
    /// if the reply is lost or not confirmed, this message is not sent again automatically, and the
    /// error is [`ErrorClass::Ambiguous`](crate::ErrorClass::Ambiguous) at once.
    /// [`Queue::get`](crate::Queue::get) shows whether the queue has the message.
    pub fn reuse_finished_id(self) -> Self {
        self.with(|message| message.finished_ids = FinishedIds::Reuse)
    }

    /// Debounces: each send with this id postpones the message, and the latest content wins. The
    /// message is due [`due_in`](Self::due_in) after the latest send, but at most `at_most` after
    /// the first (up to 100 years), so that it is not postponed forever. With zero, it is never
    /// postponed.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use delayline::Queue;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), delayline::Error> {
    /// # let queue: Queue<u64> = delayline::connect("memory:").await?.queue("index").await?;
    /// # const QUIET: Duration = Duration::from_secs(2);
    /// # const MOST: Duration = Duration::from_secs(60);
    /// let _ = queue.message(&17).id("index-17").due_in(QUIET).debounce(MOST).send().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// See [`update`](Self::update) for messages that are being handled, and for how long ids last.
    pub fn debounce(self, at_most: Duration) -> Self {
        self.update(UpdateContent::Replace, UpdateDue::Later { at_most })
    }

    /// Throttles: creates at most one message with this [`id`](Self::id), which must be set, per
    /// `window` (1 ms to 31 days). The first send in a window counts, whatever happens to its
    /// message. Other sends in the window change nothing and return
    /// [`Throttled`](crate::Enqueued::Throttled), or [`Duplicate`](crate::Enqueued::Duplicate) as
    /// long as the queue has the message with the same content. Afterwards the id may be used again
    /// ([G33](crate::guarantees#g33)).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use delayline::Queue;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), delayline::Error> {
    /// # let queue: Queue<u64> = delayline::connect("memory:").await?.queue("alerts").await?;
    /// # const HOUR: Duration = Duration::from_secs(3_600);
    /// let sent = queue.message(&17).id("disk-full-17").throttle(HOUR).send().await?;
    /// # assert_eq!(sent.outcome.name(), "created");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Use [`coalesce`](Self::coalesce) if the last send in a window should count, not the first.
    /// Sends with this id but without `throttle` are not throttled. With an
    /// [`update`](Self::update), only the creation of a message is: an update of a message that is
    /// in the queue takes effect in a window, too. A queue throttles at most 100,000 ids at a time:
    /// beyond that, nothing is created, and the outcome is
    /// [`TooManyThrottled`](crate::Enqueued::TooManyThrottled).
    ///
    /// After a reply that was lost, this message is sent again automatically only if the window is
    /// longer than the queue's [patience](crate::Queue::patience); the answer may then be
    /// `Throttled` by this very message ([`Sent::repeated`]).
    pub fn throttle(self, window: Duration) -> Self {
        self.try_with(|message| {
            message.throttle = Some(millis("throttle in ms", window, 1..=MAX_THROTTLE_MS)?);
            message.finished_ids = FinishedIds::Reuse;
            Ok(())
        })
    }

    /// Like [`throttle`](Self::throttle), but a finished message keeps its id as long as the queue
    /// remembers it, even if that is longer than the window.
    #[cfg(feature = "schedules")]
    pub(crate) fn throttle_unless_finished(self, window: Duration) -> Self {
        self.throttle(window).with(|message| message.finished_ids = FinishedIds::Refuse)
    }

    /// Coalesces: of all sends with this id, the first determines the due time, and the latest
    /// determines the content. So several sends become one delivery, with the latest content.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use delayline::Queue;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), delayline::Error> {
    /// # let queue: Queue<u64> = delayline::connect("memory:").await?.queue("reports").await?;
    /// # const WINDOW: Duration = Duration::from_secs(10);
    /// let _ = queue.message(&17).id("report-17").due_in(WINDOW).coalesce().send().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Use [`throttle`](Self::throttle) if the first send in a window should count, not the last.
    ///
    /// See [`update`](Self::update) for messages that are being handled, and for how long ids last.
    pub fn coalesce(self) -> Self {
        self.update(UpdateContent::Replace, UpdateDue::Keep)
    }

    /// If the message with this id is waiting, reschedules it and keeps its content, including its
    /// expiry. Otherwise creates it.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use delayline::Queue;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), delayline::Error> {
    /// # let queue: Queue<u64> = delayline::connect("memory:").await?.queue("reminders").await?;
    /// # const DAY: Duration = Duration::from_secs(24 * 3_600);
    /// let _ = queue.message(&17).id("remind-17").due_in(DAY).or_reschedule().send().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// See [`update`](Self::update) for messages that are being handled, and for how long ids last.
    pub fn or_reschedule(self) -> Self {
        self.update(UpdateContent::Keep, UpdateDue::Set)
    }

    /// If the message with this id is waiting, replaces its content and due time. Otherwise creates
    /// it.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use delayline::Queue;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), delayline::Error> {
    /// # let queue: Queue<u64> = delayline::connect("memory:").await?.queue("prices").await?;
    /// # const HOUR: Duration = Duration::from_secs(3_600);
    /// let _ = queue.message(&1999).id("price-17").due_in(HOUR).or_replace().send().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// See [`update`](Self::update) for messages that are being handled, and for how long ids last.
    pub fn or_replace(self) -> Self {
        self.update(UpdateContent::Replace, UpdateDue::Set)
    }

    /// Updates the message with this [`id`](Self::id), which must be set, whatever its state.
    /// [`debounce`](Self::debounce), [`coalesce`](Self::coalesce),
    /// [`or_reschedule`](Self::or_reschedule) and [`or_replace`](Self::or_replace) are the usual
    /// kinds of updates. [`Sent::outcome`] says what happened:
    ///
    /// | the message with this id | effect | outcome |
    /// |---|---|---|
    /// | waits | `content` and `due` apply to it | [`Updated`](crate::Enqueued::Updated), or [`Duplicate`](crate::Enqueued::Duplicate) if neither changes |
    /// | is being handled | this one *follows* it: it takes its place when the handler ends, however it ends. A further update applies to the follower: there is one at most | [`Following`](crate::Enqueued::Following) |
    /// | is a dead letter | this one takes its place | [`Updated`](crate::Enqueued::Updated) |
    /// | is unknown, or has finished | this one is created | [`Created`](crate::Enqueued::Created) |
    ///
    /// No update is lost, and two messages with one id are never handled at once
    /// ([G29](crate::guarantees#g29), [G30](crate::guarantees#g30)). The content has at most 16
    /// KiB, with headers. A trace context is kept only if the caller has set it.
    ///
    /// This call gives the update a random token. So sending a clone of this draft again changes
    /// nothing, and the library repeats it after a lost reply. That holds as long as
    ///
    /// - fewer than four other updates of the id were sent in between,
    /// - the message, if it has finished, is still remembered ([G15](crate::guarantees#g15)), and
    /// - the id has not been reused for a message that is not an update.
    ///
    /// Make a new draft for a new update.
    pub fn update(self, content: UpdateContent, due: UpdateDue) -> Self {
        let token = UpdateToken::from_uuid(uuid::Uuid::new_v4().into_bytes());
        self.update_as(content, due, token)
    }

    /// Like [`update`](Self::update), with your own token, for example one that your client repeats
    /// with its request.
    pub fn update_as(self, content: UpdateContent, due: UpdateDue, token: UpdateToken) -> Self {
        self.try_with(|message| {
            message.known = Known::Update(Update::new(content, due.try_into()?, token));
            message.finished_ids = FinishedIds::Reuse;
            Ok(())
        })
    }

    /// Makes the message due `delay` from now by the server's clock: up to 100 years, to the
    /// millisecond, rounded up ([G4](crate::guarantees#g4)).
    pub fn due_in(self, delay: Duration) -> Self {
        self.try_with(|message| {
            let delay = millis("due_in: the duration in ms", delay, 0..=MAX_DELAY_MS)?;
            message.schedule = Schedule::In(delay);
            Ok(())
        })
    }

    /// Makes the message due at an instant up to the end of the year 9999, to the millisecond,
    /// rounded up ([G4](crate::guarantees#g4)). A past instant means now.
    pub fn due_at(self, due: SystemTime) -> Self {
        self.try_with(|message| {
            message.schedule =
                Schedule::At(timestamp("due_at: the instant in ms since 1970", due)?);
            Ok(())
        })
    }

    /// Sets the message's group, such as a tenant or a customer: 1 to 128 bytes of text. Groups
    /// with due messages take turns, so a group with many messages does not delay others
    /// ([G35](crate::guarantees#g35)). The group is part of the content
    /// ([G15](crate::guarantees#g15)), and a message with a group has normal priority.
    ///
    /// ```
    /// # use delayline::{Found, Queue};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), delayline::Error> {
    /// # let mails: Queue<u64> = delayline::connect("memory:").await?.queue("mails").await?;
    /// let _ = mails.message(&1).id("mail-1").group("tenant-7").send().await?;
    /// let Found::Live(mail) = mails.get("mail-1").await? else { panic!("it is lost") };
    /// assert_eq!(mail.info.group.map(|group| group.to_string()).as_deref(), Some("tenant-7"));
    ///
    /// let error = mails.message(&2).group("").send().await.unwrap_err();
    /// assert_eq!(error.to_string(), "the group is empty");
    /// # Ok(())
    /// # }
    /// ```
    pub fn group<G>(self, group: G) -> Self
    where
        G: TryInto<Group, Error: Into<Error>>,
    {
        self.try_with(|message| {
            message.group = Some(group.try_into().map_err(Into::into)?);
            Ok(())
        })
    }

    /// Sets the message's priority among due messages ([G12](crate::guarantees#g12)).
    pub fn priority(self, priority: Priority) -> Self {
        self.with(|message| message.priority = priority)
    }

    /// Sets a header, replacing an earlier one with that name. Names have 1 to 255 bytes; a message
    /// has at most 32 headers, of 8 KiB in total.
    pub fn header(self, name: impl Into<String>, value: impl Into<Bytes>) -> Self {
        self.try_with(|message| Ok(message.headers.set(name, value)?))
    }

    /// Sets the kind of the payload.
    pub(crate) fn kind(self, kind: &str) -> Self {
        self.try_with(|message| Ok(message.headers.set_kind(kind)?))
    }

    /// Keeps the handler's result for this long after the ack, up to seven days, for
    /// [`Queue::wait_for`](crate::Queue::wait_for). The time is rounded up to the millisecond, and
    /// is at least 1 ms.
    ///
    /// It is stored in the header
    /// [`Headers::RESULT_RETENTION_MS`](crate::message::Headers::RESULT_RETENTION_MS), and is thus
    /// part of the content.
    pub fn keep_result(self, retention: Duration) -> Self {
        self.try_with(|message| {
            millis("keep_result: the duration in ms", retention, 1..=MAX_RESULT_RETENTION_MS)?;
            Ok(message.headers.set_result_retention(retention)?)
        })
    }

    /// Sets the trace that the message belongs to, in the headers `traceparent` and `tracestate`.
    ///
    /// The context is not part of the content: the same id with another context is a duplicate
    /// ([G15](crate::guarantees#g15)), and the first context stays.
    pub fn trace_context(self, context: &TraceContext) -> Self {
        self.try_with(|message| Ok(context.put(&mut message.headers)?))
    }

    /// Makes the message expire `after` from now, up to 100 years: no delivery of it begins after
    /// that, retries included; it becomes a dead letter instead. With zero, it is never delivered.
    pub fn expires_in(self, after: Duration) -> Self {
        self.try_with(|message| {
            let after = millis("expires_in: the duration in ms", after, 0..=MAX_DELAY_MS)?;
            message.expires = Some(Schedule::In(after));
            Ok(())
        })
    }

    /// Makes the message expire at an instant, up to the end of the year 9999.
    pub fn expires_at(self, instant: SystemTime) -> Self {
        self.try_with(|message| {
            let what = "expires_at: the instant in ms since 1970";
            message.expires = Some(Schedule::At(timestamp(what, instant)?));
            Ok(())
        })
    }

    /// Sets the number of failures after which the message becomes a dead letter: 1 to 65,535
    /// ([G9](crate::guarantees#g9)).
    pub fn max_failures(self, max_failures: u32) -> Self {
        self.with(|message| message.max_failures = max_failures)
    }

    /// Sets the number of expired leases after which the message becomes a dead letter: 1 to 65,535
    /// ([G9](crate::guarantees#g9)). With 1, a single claim whose reply is lost makes it a dead
    /// letter.
    pub fn max_crashes(self, max_crashes: u32) -> Self {
        self.with(|message| message.max_crashes = max_crashes)
    }

    /// Delivers the message when these have ended: its *members*, up to 10,000 in all calls
    /// together. They are ids of messages of the same queue, or [members](crate::Queue::member) of
    /// other queues of the same connection. They may be sent earlier or later.
    /// [`Job::members`](crate::Job::members) has their ends and results.
    ///
    /// ```
    /// # use delayline::Queue;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), delayline::Error> {
    /// # let connection = delayline::connect("memory:").await?;
    /// # let thumbs: Queue<u64> = connection.queue("thumbs").await?;
    /// # let galleries: Queue<u64> = connection.queue("galleries").await?;
    /// let images = ["thumb-1", "thumb-2"].map(|id| thumbs.member(id));
    /// let images = images.into_iter().collect::<Result<Vec<_>, _>>()?;
    /// let gallery = galleries.message(&17).id("gallery-17").after(images);
    /// assert!(gallery.send().await?.is_accepted());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// - **End.** A member has ended when it is acked, cancelled, purged, relayed or a dead letter;
    ///   [`on_failure`](Self::on_failure) may end the wait earlier. A dead letter that is redriven
    ///   before the last member has ended is waited for again.
    /// - **Delay.** The message is delivered within milliseconds of the last end if the members
    ///   [wake](Self::wakes) it, as members of [`send_with_members`](Self::send_with_members) do.
    ///   While ten or more are left, it is checked at most twice a second. Without a wake-up, for
    ///   example because it is lost or the member was cancelled, the delay is an eighth of the time
    ///   waited so far, and at most 30 s.
    /// - **Limit.** After [`wait_at_most`](Self::wait_at_most), one day by default, the message is
    ///   delivered, whatever is left: such as an id that is never sent, or messages that wait for
    ///   each other.
    /// - **Forgotten ends.** A queue remembers the end of a message for an hour at least
    ///   ([G15](crate::guarantees#g15)), and workers remember the ends that they have seen while
    ///   they run, for up to 1,000 waiting messages of a queue at a time. An end that no running
    ///   worker has seen in time, or remembers, is missing until the limit.
    /// - **Workers.** Any worker of the queue checks the members, as do consumers over HTTP.
    ///   A [relay](crate::Queue::relay) does not, and moves the message at once.
    /// - **Crashes.** A check leases the message. A worker that is killed during one counts towards
    ///   [`max_crashes`](Self::max_crashes), 5 by default: after as many, the message is a dead
    ///   letter, even if it was never delivered. If workers are killed often, set more.
    ///
    /// The message has its own group, normal priority and no due time. Its payload, with the
    /// ids of the members, has at most 1 MiB. The members are part of the content
    /// ([G15](crate::guarantees#g15)). A member of another connection is invalid, and nothing is
    /// sent.
    #[doc(alias = "chord")]
    #[doc(alias = "flow")]
    #[doc(alias = "join")]
    pub fn after<I, M>(mut self, members: I) -> Self
    where
        I: IntoIterator<Item = M>,
        M: TryInto<Member, Error: Into<Error>>,
    {
        self.waits = true;
        for member in members {
            match member.try_into().map_err(Into::into).and_then(|it| self.near(it)) {
                Ok(member) => self.waiting.members.push(member),
                Err(error) => return self.try_with(|_| Err(error)),
            }
        }
        self
    }

    /// Sets the effect of a member that ends without an ack on a message that waits
    /// [for it](Self::after). By default, it counts as ended. A draft without `after` is invalid.
    pub const fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.waiting.on_failure = on_failure;
        self
    }

    /// Sets how long the message waits [for others](Self::after), from now: 1 ms to 100 years, one
    /// day by default. Then it is delivered, whatever is left. A draft without `after` is invalid.
    pub const fn wait_at_most(mut self, at_most: Duration) -> Self {
        self.waiting.at_most = at_most;
        self
    }

    /// Wakes a message that waits for this one: the worker that ends this message makes the other
    /// one due, to be checked. So it must be a message that waits. It is an id of this queue, or a
    /// [member](crate::Queue::member) of another queue of the same connection. It is stored in the
    /// header [`WAKES`], and is thus part of the content.
    ///
    /// [`send_with_members`](Self::send_with_members) sets it.
    pub fn wakes<M>(self, waiting: M) -> Self
    where
        M: TryInto<Member, Error: Into<Error>>,
    {
        let waiting = waiting.try_into().map_err(Into::into).and_then(|it| self.near(it));
        self.try_with(|message| Ok(message.headers.set(WAKES, wire::name(&waiting?))?))
    }

    /// A member, as the queue of this draft names it.
    fn near(&self, member: Member) -> Result<Member, Error> {
        Ok(member.seen_from(self.client.queue_name(), self.client.siblings())?)
    }

    /// Sends the message. Concurrent sends are grouped: see [`Queue`](crate::Queue).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped while the message is still waiting to be sent, it is not sent. If
    /// it is already in flight, it may or may not reach the queue.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Encode`](crate::ErrorKind::Encode) if the value cannot be encoded.
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if a value is outside its limits.
    /// [`ErrorKind::Overloaded`](crate::ErrorKind::Overloaded) if too many sends are waiting;
    /// nothing was sent. Otherwise see [`Queue::patience`](crate::Queue::patience). After an
    /// ambiguous error, send a message with the same id and content again to be sure. For an
    /// update, send a clone of this draft.
    pub async fn send(self) -> Result<Sent, Error> {
        let (client, merger) = (self.client.clone(), self.merger.clone());
        merger.send(&client, self.try_into()?).await
    }
}

fn checked(message: NewMessage) -> Result<NewMessage, Error> {
    let actual = message.payload.len();
    if actual > MAX_PAYLOAD_BYTES {
        let (what, unit) = ("the payload", "bytes");
        return Err(Violation::TooLong { what, unit, actual, limit: MAX_PAYLOAD_BYTES }.into());
    }
    Ok(message)
}

/// The error for an id that no other message has: no update would find a message, and no send would
/// be throttled.
pub(super) fn generated(id: &MessageId) -> Violation {
    let reason = "it is generated, and an update, a throttle or a message with members needs an id of \
                  your own";
    let (what, value, reason) = ("the message id", id.to_string(), reason.to_owned());
    Violation::Malformed { what, value, reason }
}

/// Converts to the message of [`Op::Enqueue`](crate::backend::Op::Enqueue), for any queue, or
/// returns the first error of a setter.
impl TryFrom<Draft> for NewMessage {
    type Error = Error;

    fn try_from(draft: Draft) -> Result<Self, Error> {
        let Draft { client, message, named, waiting, waits, .. } = draft;
        let mut message = message?;
        if waits {
            waiting.put(&mut message)?;
        } else if waiting != Waiting::new() {
            let reason = "on_failure and wait_at_most are for messages with after".to_owned();
            let (what, value) = ("the draft", message.id.to_string());
            return Err(Violation::Malformed { what, value, reason }.into());
        }
        if !named && (message.known != Known::Refuse || message.throttle.is_some()) {
            return Err(generated(&message.id).into());
        }
        if message.headers.get(TraceContext::TRACEPARENT).is_none()
            && let Some(context) = client.trace_context()
        {
            let is_update = message.known != Known::Refuse;
            let without = is_update.then(|| message.headers.clone());
            let mut put = context.put(&mut message.headers);
            if let Some(without) = without {
                // The limits of an update are lower than those of headers.
                put = put.and_then(|()| message.validate());
                if put.is_err() {
                    message.headers = without;
                }
            }
            if let Err(violation) = put {
                tracing::debug!(%violation, "sent without its trace context");
            }
        }
        Ok(message)
    }
}
