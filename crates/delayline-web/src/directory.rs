//! The queues that are shown: added ones, and discovered ones.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex as StdMutex, PoisonError, Weak};
use std::time::Duration;

use delayline::admin::QueueName;
use delayline::backend::Op;
use delayline::codec::Raw;
use delayline::{Bytes, Connection, Error, ErrorClass};
use futures_util::{StreamExt as _, stream};
use tokio::sync::{Mutex, Semaphore, watch};
use tokio::time::{Instant, timeout};
use tracing::Instrument as _;

use crate::failure::Failure;
use crate::served::Served;

/// Queues by name.
pub(crate) type Queues = BTreeMap<String, Arc<Served>>;

/// The known queues at a moment.
#[derive(Clone, Default)]
pub(crate) struct Known {
    pub(crate) queues: Arc<Queues>,
    /// Something if a server is looked through for queues.
    pub(crate) search: Option<Search>,
}

/// How the search for queues has gone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Search {
    /// When the list of queues was last read.
    pub(crate) read: Option<Instant>,
    /// The server had more keys than are looked at, so there may be more queues.
    pub(crate) cut: bool,
    /// How many queues were found and are not shown, since there are too many.
    pub(crate) left_out: usize,
    /// The first queues that could not be opened, and why.
    pub(crate) refused: Vec<(String, Error)>,
    /// Why the queues of some primaries could not be read; known ones remain.
    pub(crate) unread: Option<Error>,
    /// Why the list could not be read when it last should have been.
    pub(crate) failure: Option<Error>,
    /// When that was tried, and ended.
    tried: Option<Instant>,
}

impl Search {
    /// Whether the list was read, and has all queues of the server.
    pub(crate) const fn is_complete(&self) -> bool {
        self.read.is_some() && !self.is_partial()
    }

    /// Whether there are queues that are not in the list, or may be.
    pub(crate) const fn is_partial(&self) -> bool {
        self.cut || self.left_out > 0 || !self.refused.is_empty() || self.unread.is_some()
    }
}

impl Known {
    /// Returns the queues whose names satisfy a condition. What the search says of other queues is
    /// left out.
    pub(crate) fn only(&self, is_wanted: impl Fn(&str) -> bool) -> Self {
        let all = self.queues.iter().filter(|(name, _)| is_wanted(name));
        let queues = all.map(|(name, served)| (name.clone(), Arc::clone(served))).collect();
        Self { queues: Arc::new(queues), search: None }
    }

    /// Whether the server must be asked again.
    fn is_old(&self) -> bool {
        let Some(search) = &self.search else { return false };
        let has_failed = search.failure.is_some() || search.unread.is_some();
        let age = if has_failed { RETRY } else { MOST_AGE };
        search.tried.is_none_or(|tried| tried.elapsed() >= age)
    }

    /// Whether the server was never asked.
    fn is_unread(&self) -> bool {
        self.search.as_ref().is_some_and(|it| it.tried.is_none())
    }
}

/// Knows the queues, and looks for more if it was given a connection.
pub(crate) struct Directory {
    added: Arc<Queues>,
    finder: Option<Finder>,
}

struct Finder {
    connection: Connection,
    /// Held by the one search that is under way.
    turn: Arc<Mutex<()>>,
    known: watch::Sender<Known>,
    /// Queues that are not in the list, and that consumers wait on.
    awaited: StdMutex<BTreeMap<String, Weak<Served>>>,
    /// Requests for queues that are not in the list.
    requests: Semaphore,
}

impl Directory {
    pub(crate) fn new(added: Queues, connection: Option<Connection>) -> Self {
        let added = Arc::new(added);
        let known = Known { queues: Arc::clone(&added), search: Some(Search::default()) };
        let finder = connection.map(|connection| {
            let known = watch::Sender::new(known);
            let (turn, awaited) = Default::default();
            Finder { connection, turn, known, awaited, requests: Semaphore::new(FOUND_AT_ONCE) }
        });
        Self { added, finder }
    }

    /// Opens a queue that is not in the list, if queues are looked for; a send may create it.
    pub(crate) async fn open(&self, name: &str) -> Option<Result<Arc<Served>, Error>> {
        Some(open(&self.finder.as_ref()?.connection, name).await)
    }

    /// Returns a queue that exists and is not in the list yet, if queues are looked for. Adds it to
    /// the list. A name of no queue leaves nothing behind.
    pub(crate) async fn find(&self, name: &str) -> Result<Option<Arc<Served>>, Failure> {
        let Some(finder) = &self.finder else { return Ok(None) };
        let Ok(parsed) = QueueName::new(name) else { return Ok(None) };
        let permit = timeout(LONGEST_TURN, finder.requests.acquire()).await;
        let _permit = permit.map_err(|_| Failure::Crowded)?;
        if let Some(served) = finder.known.borrow().queues.get(name) {
            return Ok(Some(Arc::clone(served)));
        }
        // Reads no names of a server, where opening a queue does not create it. Elsewhere, these
        // are all names.
        let found = finder.connection.queues_within(0).await?;
        if found.complete && !found.names.contains(&parsed) {
            return Ok(None);
        }
        let served = open(&finder.connection, name).await?;
        if served.queue.apply(&Op::Stats).await?.revision == 0 {
            return Ok(None);
        }
        self.add(name, Arc::clone(&served));
        Ok(Some(served))
    }

    /// Returns a queue that is not in the list for its consumers, if queues are looked for. As long
    /// as one of them has it, the others get the same.
    pub(crate) async fn open_for_consumers(
        &self,
        name: &str,
    ) -> Option<Result<Arc<Served>, Error>> {
        let finder = self.finder.as_ref()?;
        let awaited = || finder.awaited.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(served) = awaited().get(name).and_then(Weak::upgrade) {
            return Some(Ok(served));
        }
        let opened = match self.open(name).await? {
            Ok(opened) => opened,
            Err(error) => return Some(Err(error)),
        };
        let mut awaited = awaited();
        if let Some(served) = awaited.get(name).and_then(Weak::upgrade) {
            return Some(Ok(served));
        }
        awaited.retain(|_, served| served.strong_count() > 0);
        awaited.insert(name.to_owned(), Arc::downgrade(&opened));
        Some(Ok(opened))
    }

    /// Adds a queue to the list, unless there are too many: the server has it from now on.
    pub(crate) fn add(&self, name: &str, served: Arc<Served>) {
        let Some(finder) = &self.finder else { return };
        finder.known.send_if_modified(|known| {
            let is_full = known.queues.len() >= self.added.len().saturating_add(MOST_QUEUES);
            if is_full || known.queues.contains_key(name) {
                return false;
            }
            let mut queues = Queues::clone(&known.queues);
            queues.insert(name.to_owned(), served);
            known.queues = Arc::new(queues);
            true
        });
    }

    /// The known queues. Searches again if they are older than a minute, and waits a moment for the
    /// result. A longer search continues, and its result is shown later.
    pub(crate) async fn known(&self) -> Known {
        let Some(finder) = &self.finder else {
            return Known { queues: Arc::clone(&self.added), search: None };
        };
        let mut news = finder.known.subscribe();
        let known = news.borrow_and_update().clone();
        if !known.is_old() {
            return known;
        }
        let wait = if known.is_unread() { FIRST_WAIT } else { NEXT_WAIT };
        if let Ok(turn) = Arc::clone(&finder.turn).try_lock_owned() {
            // Another request may have just finished reading the list.
            if !finder.known.borrow().is_old() {
                return finder.known.borrow().clone();
            }
            let (connection, to) = (finder.connection.clone(), finder.known.clone());
            let added = Arc::clone(&self.added);
            let search = async move {
                let before = to.borrow().clone();
                let now = look(&connection, &added, &before, MOST_KEYS).await;
                told(&before, &now);
                to.send_modify(|known| *known = with_added(now, &before, known));
                drop(turn);
            };
            tokio::spawn(search.in_current_span());
        } else if !known.is_unread() {
            return known;
        }
        match timeout(wait, news.changed()).await {
            Ok(_) => news.borrow().clone(),
            Err(_) => known,
        }
    }
}

/// The queues of the server, in addition to the added ones.
async fn look(connection: &Connection, added: &Queues, before: &Known, most_keys: u64) -> Known {
    let begin = Instant::now();
    let found = match connection.queues_within(most_keys).await {
        Ok(found) => found,
        Err(error) => return failed(before, &error),
    };
    let mut queues = added.clone();
    let mut search = Search {
        read: Some(begin),
        cut: !found.complete && found.failure.is_none(),
        unread: found.failure,
        ..Search::default()
    };
    let mut names = found.names;
    if !found.complete {
        // A queue that was not seen this time may well exist.
        let parsed = before.queues.keys().filter_map(|name| QueueName::new(name.as_str()).ok());
        names.extend(parsed);
        names.sort();
        names.dedup();
    }
    names.retain(|name| !added.contains_key(name.as_str()));
    search.left_out = names.len().saturating_sub(MOST_QUEUES);
    names.truncate(MOST_QUEUES);
    let mut opening = names.into_iter().map(|name| {
        let known = before.queues.get(name.as_str()).map(Arc::clone);
        async move {
            let opened = match known {
                Some(served) => Ok(served),
                None => open(connection, name.as_str()).await,
            };
            (name.to_string(), opened)
        }
    });
    // The first one loads the script into the server for all.
    let first = stream::iter(opening.next()).buffered(1);
    let mut opened = pin!(first.chain(stream::iter(opening).buffered(OPENED_AT_ONCE)));
    while let Some((name, opened)) = opened.next().await {
        match opened {
            Ok(served) => {
                queues.insert(name, served);
            }
            Err(error) if is_of_the_queue(&error) => {
                if search.refused.len() < MOST_REFUSED {
                    search.refused.push((name, error));
                }
            }
            Err(error) => return failed(before, &error),
        }
    }
    search.tried = Some(Instant::now());
    Known { queues: Arc::new(queues), search: Some(search) }
}

/// The result of a search that began with `before`, and the queues that were added meanwhile.
fn with_added(mut found: Known, before: &Known, current: &Known) -> Known {
    let is_added = |name: &String| !before.queues.contains_key(name);
    let added = current.queues.iter().filter(|(name, _)| is_added(name));
    Arc::make_mut(&mut found.queues)
        .extend(added.map(|(name, served)| (name.clone(), Arc::clone(served))));
    found
}

async fn open(connection: &Connection, name: &str) -> Result<Arc<Served>, Error> {
    Ok(Arc::new(Served::new(connection.queue::<Bytes>(name).await?.codec(Raw))))
}

/// The queues known before, and why there is nothing new.
fn failed(before: &Known, error: &Error) -> Known {
    let search = before.search.clone().unwrap_or_default();
    let search = Search { failure: Some(error.clone()), tried: Some(Instant::now()), ..search };
    Known { search: Some(search), ..before.clone() }
}

/// Whether opening another queue may succeed.
fn is_of_the_queue(error: &Error) -> bool {
    error.class() == ErrorClass::Rejected
}

/// Logs the effect of a change of the list, for operators who only see metrics.
fn told(before: &Known, now: &Known) {
    let (Some(before), Some(now)) = (&before.search, &now.search) else { return };
    match (&before.failure, &now.failure) {
        (None, Some(why)) => tracing::warn!(%why, "the queues of the server cannot be listed"),
        (Some(_), None) => tracing::info!("the queues of the server are listed again"),
        _ => {}
    }
    if now.is_partial() && !before.is_partial() {
        let Search { cut, left_out, unread, .. } = now;
        let unread = unread.as_ref().map(tracing::field::display);
        let refused = now.refused.len();
        tracing::warn!(cut, left_out, refused, unread, "not all queues of the server are shown");
    }
}

/// How old a list may be before the server is asked again.
const MOST_AGE: Duration = Duration::from_secs(60);
/// The same after a failure.
const RETRY: Duration = Duration::from_secs(5);
/// How long a request waits for the first list.
const FIRST_WAIT: Duration = Duration::from_secs(2);
/// How long a request waits for a newer list.
const NEXT_WAIT: Duration = Duration::from_millis(50);

/// The keys of each server that are looked at.
pub(crate) const MOST_KEYS: u64 = 1_000_000;
/// Maximum number of queues that are shown in addition to the queues that were added. While the
/// first page is open, each is counted: once a minute if its row is not on the page.
pub(crate) const MOST_QUEUES: usize = 1_000;
const MOST_REFUSED: usize = 10;
/// Opening a queue takes several calls, so one by one would take a second for all.
const OPENED_AT_ONCE: usize = 64;
/// Requests with names of no queue must not occupy the server.
const FOUND_AT_ONCE: usize = 8;
/// How long such a request waits for others.
const LONGEST_TURN: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use delayline::{Connect, Queue};
    use delayline_test_server::Server;

    use super::*;

    fn names(known: &Known) -> Vec<&str> {
        known.queues.keys().map(String::as_str).collect()
    }

    async fn create(connection: &Connection, name: &str) {
        let queue: Queue<u64> = connection.queue(name).await.unwrap();
        queue.send(&1).await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_list_that_is_cut_or_fails_forgets_no_queue() {
        let server = Server::start();
        for number in 0..3_000 {
            server.command(&["SET", &format!("other:{number}"), "x"]);
        }
        let connection = Connect::new(&server.url()).unwrap().connect().await.unwrap();
        for number in 0..20 {
            create(&connection, &format!("queue-{number:02}")).await;
        }
        let added = Queues::new();
        let all = look(&connection, &added, &Known::default(), MOST_KEYS).await;
        let search = all.search.as_ref().unwrap();
        assert!(!search.is_partial() && search.failure.is_none(), "{search:?}");
        assert_eq!(all.queues.len(), 20);
        // 1,000 of 3,000 keys.
        let some = look(&connection, &added, &Known::default(), 1).await;
        assert!(some.search.as_ref().unwrap().cut && some.queues.len() < 20, "{:?}", names(&some));
        let again = look(&connection, &added, &all, 1).await;
        assert!(again.search.as_ref().unwrap().cut);
        assert_eq!(names(&again), names(&all));

        server.kill();
        let failed = look(&connection, &added, &all, MOST_KEYS).await;
        assert_eq!(names(&failed), names(&all));
        let search = failed.search.unwrap();
        assert!(search.failure.is_some() && search.read.is_some(), "{search:?}");
    }

    #[tokio::test]
    async fn a_queue_that_is_added_during_a_search_stays() {
        let server = Server::start();
        let connection = Connect::new(&server.url()).unwrap().connect().await.unwrap();
        create(&connection, "orders").await;
        let added = open(&connection, "added").await.unwrap();
        let directory = Directory::new(Queues::new(), Some(connection));
        let add = async {
            // The search has begun, and waits for the server.
            tokio::task::yield_now().await;
            directory.add("added", Arc::clone(&added));
        };
        let (mut known, ()) = tokio::join!(directory.known(), add);
        while !known.queues.contains_key("orders") {
            tokio::task::yield_now().await;
            known = directory.known().await;
        }
        assert_eq!(names(&known), ["added", "orders"]);
        assert!(Arc::ptr_eq(&known.queues["added"], &added));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_queue_that_cannot_be_opened_is_told_and_one_that_is_gone_goes() {
        let server = Server::start();
        let connection = Connect::new(&server.url()).unwrap().connect().await.unwrap();
        create(&connection, "orders").await;
        create(&connection, "texts").await;
        server.command(&["SET", "delayline:{future}:control", &"x".repeat(100)]);
        let added = Queues::new();
        let first = look(&connection, &added, &Known::default(), MOST_KEYS).await;
        assert_eq!(names(&first), ["orders", "texts"]);
        let refused = &first.search.as_ref().unwrap().refused;
        assert!(refused.len() == 1 && refused[0].0 == "future", "{refused:?}");
        server.command(&["FLUSHALL"]);
        create(&connection, "texts").await;
        let second = look(&connection, &added, &first, MOST_KEYS).await;
        assert_eq!(names(&second), ["texts"]);
        assert!(!second.search.unwrap().is_partial());
    }
}
