//! The queues that are open, and their settings.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use delayline::admin::{Listed, QueueName, SetLimits};
use delayline::backend::{Lease, MessageInfo, Op, Outcome, Settlement, Stats, UpdateContent};
use delayline::codec::Raw;
use delayline::limits::MAX_ATTEMPT_LIMIT;
use delayline::message::Status;
use delayline::update::{UpdateDue, UpdateToken};
use delayline::{Bytes, Cancelled, Connection, Durability, Enqueued, Found, MessageId, Queue};
use delayline_web::Visitor;
use delayline_web::waiting::Polls;
use tokio::sync::{OnceCell, OwnedMutexGuard};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::error::{Code, Error};
use crate::names::FIFO;
use crate::receipt::Latest;
use crate::settings::Settings;

/// A queue, and the polls that wait for its messages.
pub(crate) struct Open {
    pub(crate) name: String,
    pub(crate) queue: Queue<Bytes, Raw>,
    pub(crate) polls: Arc<Polls>,
    pub(crate) latest: Latest,
    /// When the queue was last seen to deliver the messages of a group in order, once it was.
    in_order: OnceCell<Mutex<Instant>>,
    stop: Mutex<CancellationToken>,
}

impl Open {
    pub(crate) fn is_fifo(&self) -> bool {
        self.name.ends_with(FIFO)
    }

    /// Ends waiting receives when the server stops, or the queue is deleted.
    pub(crate) fn stop(&self) -> CancellationToken {
        self.stop.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Lets a FIFO queue deliver the messages of a group in order, unless it was seen to do so
    /// within [`AGE`]. Programs may have used it before it was created here. Its limits may be
    /// changed or lost later.
    pub(crate) async fn ensure_order(&self) -> Result<(), Error> {
        if !self.is_fifo() {
            return Ok(());
        }
        let ensure = || async {
            if !self.queue.stats().await?.limits.in_order {
                self.queue.set_limits(SetLimits::new().in_order(true)).await?;
            }
            Ok::<_, Error>(())
        };
        let first = || async {
            ensure().await?;
            Ok::<_, Error>(Mutex::new(Instant::now()))
        };
        let seen = self.in_order.get_or_try_init(first).await?;
        {
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            if seen.elapsed() < AGE {
                return Ok(());
            }
            // One request checks it again; requests in the meantime do not wait for it.
            *seen = Instant::now();
        }
        match ensure().await {
            // Polls wait for the server.
            Err(error) if error.code() == Code::Unavailable => Ok(()),
            ensured => ensured,
        }
    }

    /// Ends leases before their timeout. A message whose cancel was requested ends, and the others
    /// become visible.
    pub(crate) async fn release(
        &self,
        leases: impl Iterator<Item = (MessageId, Lease)>,
    ) -> Result<(), Error> {
        let settlements: Vec<_> =
            leases.map(|(id, lease)| Settlement::new(id, lease, Outcome::Release)).collect();
        if !settlements.is_empty() {
            self.queue.apply(&Op::Settle(settlements)).await?;
        }
        Ok(())
    }
}

/// When settings were read, and the settings.
type Known = (Instant, Option<Arc<Settings>>);

/// The queues of a connection.
pub(crate) struct Queues {
    connection: Connection,
    durability: Durability,
    /// Whether the limits of SQS apply where ours are wider.
    pub(crate) is_strict: bool,
    /// One message for each queue. It is due in the year 9000, unless the queue was deleted.
    settings: Queue<Settings>,
    settings_name: String,
    /// The name of the queue of move tasks.
    tasks_name: String,
    /// The only queues that exist here; `None` for all.
    only: Option<BTreeSet<String>>,
    open: Mutex<HashMap<String, Arc<Open>>>,
    known: Mutex<HashMap<String, Known>>,
    /// Held while settings are read, changed and stored, so that changes at this server do not
    /// refuse each other.
    changing: Arc<tokio::sync::Mutex<()>>,
    stop: CancellationToken,
}

impl Queues {
    pub(crate) async fn open(
        connection: Connection,
        settings_name: String,
        only: Option<BTreeSet<String>>,
        durability: Durability,
        is_strict: bool,
    ) -> Result<Self, delayline::Error> {
        let settings = connection.queue(&settings_name).await?.patience(PATIENCE);
        let settings = settings.durability(durability);
        let tasks_name = format!("{settings_name}-moves");
        let (open, known, changing, stop) = Default::default();
        Ok(Self {
            connection,
            durability,
            is_strict,
            settings,
            settings_name,
            tasks_name,
            only,
            open,
            known,
            changing,
            stop,
        })
    }

    /// Ends waiting receives once this token is cancelled.
    pub(crate) fn stop_on(self, stop: CancellationToken) -> Self {
        Self { stop, ..self }
    }

    pub(crate) const fn settings(&self) -> &Queue<Settings> {
        &self.settings
    }

    pub(crate) fn tasks_name(&self) -> &str {
        &self.tasks_name
    }

    /// Returns the open queue of this name and its settings.
    ///
    /// # Errors
    ///
    /// If it does not exist: it was neither created here, nor has a program ever sent a message to
    /// it.
    pub(crate) async fn get(&self, name: &str) -> Result<(Arc<Open>, Arc<Settings>), Error> {
        self.permitted(name)?;
        self.existing(name).await
    }

    /// Like [`get`](Self::get), for a move task: a server with other queues may have started it.
    pub(crate) async fn existing(&self, name: &str) -> Result<(Arc<Open>, Arc<Settings>), Error> {
        if !self.is_usable(name) {
            return Err(Error::no_queue());
        }
        if let Some(settings) = self.settings_of(name).await? {
            if settings.is_deleted {
                match settings.is_being_deleted {
                    true => self.end_receives(self.locked_open().get(name)),
                    false => self.close(name),
                }
                return Err(Error::no_queue());
            }
            let open = self.opened(name).await?;
            open.ensure_order().await?;
            return Ok((open, settings));
        }
        let open = self.opened(name).await?;
        let is_named = self.only.as_ref().is_some_and(|only| only.contains(name));
        if is_named || is_used(&open.queue.stats().await?) {
            open.ensure_order().await?;
            let settings = Arc::<Settings>::default();
            self.keep(name, Some(&settings));
            return Ok((open, settings));
        }
        self.close(name);
        Err(Error::no_queue())
    }

    /// Returns `false` for names of no queue, and of queues with contents of another kind.
    fn is_usable(&self, name: &str) -> bool {
        let others = [&*self.settings_name, &*self.tasks_name, delayline::schedules::DEFAULT_QUEUE];
        !others.contains(&name) && name.parse::<QueueName>().is_ok()
    }

    /// The queues that exist here for a user, as [`Visitor::only_queues`] takes them.
    pub(crate) fn known_to(&self, user: &Visitor) -> BTreeSet<String> {
        match (&self.only, user.queues.as_deref()) {
            (Some(only), _) => only.iter().filter(|name| user.knows(name)).cloned().collect(),
            (None, Some(queues)) => queues.clone(),
            (None, None) => BTreeSet::from(["*".to_owned()]),
        }
    }

    /// Returns an error for the names of queues that must not be used here.
    pub(crate) fn permitted(&self, name: &str) -> Result<(), Error> {
        let is_named = self.only.as_ref().is_none_or(|only| only.contains(name));
        if is_named && self.is_usable(name) { Ok(()) } else { Err(Error::no_queue()) }
    }

    /// Returns the queue, whether or not it exists. It stays open.
    pub(crate) async fn opened(&self, name: &str) -> Result<Arc<Open>, Error> {
        let opened = self.opened_for_now(name).await?;
        let mut open = self.locked_open();
        // A queue that another server has deleted may never be named here again.
        if open.len() >= MOST_OPEN && !open.contains_key(name) {
            open.retain(|_, it| Arc::strong_count(it) > 1);
        }
        Ok(Arc::clone(open.entry(opened.name.clone()).or_insert(opened)))
    }

    /// Like [`opened`](Self::opened), but only a queue that is open already stays open.
    pub(crate) async fn opened_for_now(&self, name: &str) -> Result<Arc<Open>, Error> {
        if let Some(open) = self.locked_open().get(name) {
            return Ok(Arc::clone(open));
        }
        let queue = self.connection.queue(name).await?.codec(Raw).patience(PATIENCE);
        let queue = queue.durability(self.durability);
        let (name, polls, latest) = (name.to_owned(), Arc::default(), Latest::default());
        let (in_order, stop) = (OnceCell::new(), Mutex::new(self.stop.child_token()));
        Ok(Arc::new(Open { name, queue, polls, latest, in_order, stop }))
    }

    /// Closes a queue that does not exist, once no request uses it.
    fn close(&self, name: &str) {
        self.end_receives(self.locked_open().remove(name).as_ref());
    }

    /// Ends the receives that wait for messages of a deleted queue: with its settings, they must
    /// not receive from the next queue of its name.
    fn end_receives(&self, open: Option<&Arc<Open>>) {
        let Some(open) = open else { return };
        let mut stop = open.stop.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *stop, self.stop.child_token()).cancel();
    }

    fn locked_open(&self) -> MutexGuard<'_, HashMap<String, Arc<Open>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn locked_known(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the settings of a queue, at most [`AGE`] old, unless they are just being read, or
    /// the server cannot be reached: then polls wait for it.
    async fn settings_of(&self, name: &str) -> Result<Option<Arc<Settings>>, Error> {
        let mut known = None;
        if let Some((read, settings)) = self.locked_known().get_mut(name) {
            if read.elapsed() < AGE {
                return Ok(settings.clone());
            }
            // One request reads them again; requests in the meantime use the known ones.
            *read = Instant::now();
            known = Some(settings.clone());
        }
        match self.read(name).await {
            Err(error) if error.code() == Code::Unavailable => known.ok_or(error),
            read => read,
        }
    }

    /// Reads the settings of a queue.
    pub(crate) async fn read(&self, name: &str) -> Result<Option<Arc<Settings>>, Error> {
        let settings = match self.settings.get(name).await? {
            Found::Live(message) => {
                let info = &message.info;
                let is_scheduled = info.state.status() == Status::Scheduled && info.failures == 0;
                Some(Arc::new(Settings {
                    version: info.sequence,
                    is_being_deleted: message.payload.is_deleted && !is_scheduled,
                    ..message.payload
                }))
            }
            _ => None,
        };
        self.keep(name, settings.as_ref());
        Ok(settings)
    }

    /// Like [`get`](Self::get), but reads the settings again: the known ones may be older than a
    /// change at another server.
    pub(crate) async fn current(&self, name: &str) -> Result<(Arc<Open>, Arc<Settings>), Error> {
        self.locked_known().remove(name);
        self.get(name).await
    }

    fn keep(&self, name: &str, settings: Option<&Arc<Settings>>) {
        let mut known = self.locked_known();
        if known.len() >= MOST_KNOWN {
            known.clear();
        }
        known.insert(name.to_owned(), (Instant::now(), settings.cloned()));
    }

    /// Returns a guard for a change of settings.
    pub(crate) async fn changing(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.changing).lock_owned().await
    }

    /// Stores settings in place of the version that they were read from. Returns `false` if that
    /// version has been replaced or removed since; then nothing has changed.
    pub(crate) async fn put(&self, name: &str, settings: &Settings) -> Result<bool, Error> {
        let draft = self.settings.message(settings).id(name);
        let draft = draft.max_failures(MAX_ATTEMPT_LIMIT).max_crashes(MAX_ATTEMPT_LIMIT);
        let mut draft = if settings.is_deleted { draft } else { draft.due_at(never()) };
        // An update has an effect once for each token, and each version has its own token. It stays
        // known after the version was removed, so a change does not undo that. Four later changes
        // forget it: a server that they overtake between its read and its write undoes them.
        draft = match settings.version {
            0 => draft.reuse_finished_id(),
            version => {
                let token = UpdateToken::from_bytes(version.to_be_bytes());
                draft.update_as(UpdateContent::Replace, UpdateDue::Set, token)
            }
        };
        let sent = draft.send().await;
        self.locked_known().remove(name);
        match sent {
            Ok(sent) => {
                Ok(matches!(sent.outcome, Enqueued::Created { .. } | Enqueued::Updated { .. }))
            }
            Err(error) if error.is_invalid() => {
                let why = "All attributes and tags of a queue may have at most 16 KiB.";
                Err(Error::new(Code::InvalidAttributeValue, why))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Deletes a queue: from now on, it does not exist for clients. Waits for some time until its
    /// messages are removed.
    pub(crate) async fn delete(&self, name: &str) -> Result<(), Error> {
        let changing = self.changing().await;
        let (open, known) = self.current(name).await?;
        let mut version = known.version;
        // The queue may be at another node of a cluster, whose clock is ahead.
        let there = open.queue.server_time().await?;
        let modified_ms = self.settings.server_time().await?.max(there).as_ms();
        let deleted = Settings { is_deleted: true, modified_ms, ..Settings::default() };
        let mut tries = 0;
        while !self.put(name, &Settings { version, ..deleted.clone() }).await? {
            // Another server was faster, or the reply was lost and this is the second try.
            match self.read(name).await? {
                Some(known) if !known.is_deleted => version = known.version,
                _ => break,
            }
            tries += 1;
            if tries == MOST_TRIES {
                return Err(Error::busy());
            }
        }
        drop(changing);
        self.end_receives(Some(&open));
        // It is deleted, also if that cannot be seen now.
        drop(self.wait_for_removal(name, MOST_WAIT).await);
        Ok(())
    }

    /// Waits until the messages of a deleted queue are removed, at most for this time.
    pub(crate) async fn wait_for_removal(&self, name: &str, most: Duration) -> Result<(), Error> {
        let (since, mut pause) = (Instant::now(), Duration::from_millis(2));
        while self.read(name).await?.is_some_and(|known| known.is_being_deleted)
            && since.elapsed() < most
        {
            sleep(pause).await;
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
        Ok(())
    }

    /// Removes the messages of a queue that were sent before this time, and the queue.
    pub(crate) async fn remove(&self, open: &Open, before_ms: u64) -> Result<Removed, Error> {
        let in_flight = clear(open, before_ms).await?;
        let mut dead = open.queue.list(Listed::Dead);
        while let Some(mut page) = dead.next_page().await? {
            retain_older(open, &mut page, before_ms).await?;
            open.queue.purge_many(page.into_iter().map(|info| info.id)).await?;
        }
        let left = match self.connection.delete_queue(&open.name).await {
            Ok(left) => left,
            Err(error) if error.is_retryable() => return Err(error.into()),
            Err(_) => return Ok(Removed::Messages),
        };
        let has_older = match left.messages {
            0 => left.results > 0 || left.throttled > 0,
            // A message may have moved between the lists. Then only later ones are left at most.
            _ => in_flight > 0 || clear(open, before_ms).await? > 0,
        };
        if has_older {
            return Ok(Removed::InPart);
        }
        self.close(&open.name);
        Ok(Removed::Whole)
    }

    /// Returns the names of all queues with settings, in order, and of the only ones.
    pub(crate) async fn names(&self) -> Result<Vec<String>, Error> {
        let mut names: BTreeSet<_> = self.only.iter().flatten().cloned().collect();
        let mut deleted = Vec::new();
        for status in [Listed::Scheduled, Listed::Ready, Listed::Leased] {
            let mut listing = self.settings.list(status);
            while let Some(page) = listing.next_page().await? {
                for ids in page.chunks(LOOK_UP) {
                    let found = self.settings.get_many(ids.iter().map(|info| &info.id)).await?;
                    for (info, found) in ids.iter().zip(found) {
                        let Some(name) = info.id.as_str() else { continue };
                        match found {
                            Found::Live(message) if message.payload.is_deleted => {
                                deleted.push(name.to_owned());
                            }
                            Found::Live(_) => drop(names.insert(name.to_owned())),
                            _ => {}
                        }
                    }
                }
            }
        }
        for name in deleted {
            names.remove(&name);
        }
        Ok(names.into_iter().filter(|name| self.permitted(name).is_ok()).collect())
    }

    /// Returns the names of the queues whose dead letters go to this queue.
    pub(crate) async fn sources_of(&self, dead: &str) -> Result<Vec<String>, Error> {
        let mut sources = Vec::new();
        for name in self.names().await? {
            let settings = self.settings_of(&name).await?;
            let redrive = settings.and_then(|settings| settings.redrive());
            if redrive.is_some_and(|redrive| redrive.queue == dead) {
                sources.push(name);
            }
        }
        Ok(sources)
    }
}

/// The parts of a deleted queue that are removed.
pub(crate) enum Removed {
    /// Everything.
    Whole,
    /// Not yet what others know, such as messages in flight at another server: it ends in time.
    InPart,
    /// The messages, where counters cannot be removed.
    Messages,
}

/// Whether a program uses the queue.
const fn is_used(stats: &Stats) -> bool {
    stats.scheduled > 0
        || stats.ready > 0
        || stats.leased > 0
        || stats.dead > 0
        || stats.totals.enqueued > 0
}

/// Cancels the messages of a queue that were sent before this time. Those in flight, too, if this
/// server has delivered them; the others end with their leases. Returns how many these are.
pub(crate) async fn clear(open: &Open, before_ms: u64) -> Result<usize, Error> {
    let mut left = 0;
    for status in [Listed::Scheduled, Listed::Ready, Listed::Leased] {
        let mut listing = open.queue.list(status);
        while let Some(mut page) = listing.next_page().await? {
            retain_older(open, &mut page, before_ms).await?;
            let ids = page.iter().map(|info| info.id.clone());
            let cancelled: Vec<Cancelled> = open.queue.cancel_many(ids).await?;
            let in_flight = page.iter().zip(cancelled).filter(|(_, it)| *it == Cancelled::InFlight);
            let known = in_flight.map(|(info, _)| {
                let latest = open.latest.of(info.sequence, info.id.clone());
                // Another server may have delivered it since.
                latest.filter(|receipt| receipt.lease.epoch == info.epoch)
            });
            let known: Vec<_> = known.collect();
            left += known.iter().filter(|receipt| receipt.is_none()).count();
            let known = known.into_iter().flatten();
            open.release(known.map(|receipt| (receipt.id, receipt.lease))).await?;
        }
    }
    Ok(left)
}

/// Leaves the messages that were sent before this time.
async fn retain_older(
    open: &Open,
    page: &mut Vec<MessageInfo>,
    before_ms: u64,
) -> Result<(), Error> {
    let is_older = |info: &MessageInfo| info.enqueued_at.as_ms() < before_ms;
    // Before this time, all are older: those with a later time were sent before the clock stepped
    // back.
    if !page.iter().all(is_older) && open.queue.server_time().await?.as_ms() >= before_ms {
        page.retain(is_older);
    }
    Ok(())
}

/// Milliseconds since 1970, by the clock of this machine.
pub(crate) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// The beginning of the year 9000: a transfer of the queue moves such messages as they are.
pub(crate) fn never() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(221_845_392_000)
}

/// How long a request is repeated while the server is unreachable.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// How old settings may be, and the knowledge that a queue is in order. SQS promises a minute.
const AGE: Duration = Duration::from_secs(2);
const MOST_KNOWN: usize = 10_000;
/// How many queues stay open, at least, though no request uses them.
const MOST_OPEN: usize = 10_000;
const LOOK_UP: usize = 16;
/// Attempts of a change that changes at other servers refuse.
pub(crate) const MOST_TRIES: usize = 100;
/// How long the deletion of a queue is answered only when its messages are removed.
const MOST_WAIT: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use delayline_test_server::Server;

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_deleted_queue_does_not_stay_open() {
        let server = Server::start();
        let connection = delayline::connect(&server.url()).await.unwrap();
        let queues = Queues::open(connection, "s".to_owned(), None, Durability::None, false);
        let queues = queues.await.unwrap();
        let open = queues.opened("orders").await.unwrap();
        open.queue.send(&Bytes::from_static(b"x")).await.unwrap();
        assert!(matches!(queues.remove(&open, u64::MAX).await.unwrap(), Removed::Whole));
        assert_eq!(Arc::strong_count(&open), 1);
        // It is removed again later, in case another server has sent a message.
        let again = queues.opened_for_now("orders").await.unwrap();
        assert_eq!(Arc::strong_count(&again), 1);
    }
}
