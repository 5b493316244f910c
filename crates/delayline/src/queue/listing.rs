//! Listing and auditing a queue, page by page.

use std::time::Duration;

use delayline_core::limits::MAX_PAGE;
use delayline_core::{
    Applied, Check, Finding, List, MessageInfo, MessageState, Op, Position, Redriven, Reply,
    Timestamp,
};

use futures_util::stream::{Stream, TryStreamExt as _, iter, try_unfold};

use crate::admin::{DeadLetterFilter, Listed};
use crate::client::Client;
use crate::error::valid_delay;
use crate::{Error, Queue};

/// A listing of the messages of one status. Created by [`Queue::list`](crate::Queue::list) or
/// [`Queue::dead_letters`](crate::Queue::dead_letters).
///
/// ```
/// # use delayline::Queue;
/// # use delayline::admin::Listed;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), delayline::Error> {
/// # let queue: Queue<u64> = delayline::connect("memory:").await?.queue("numbers").await?;
/// let mut scheduled = queue.list(Listed::Scheduled);
/// while let Some(page) = scheduled.next_page().await? {
///     for message in page {
///         println!("{} is due at {}", message.id, message.due);
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Listing {
    client: Client,
    status: Listed,
    after: Option<Position>,
    page_size: usize,
    ended: bool,
    bound: Option<Bound>,
    filter: Option<DeadLetterFilter>,
}

/// The end of a listing of dead letters. Each new death adds an entry to the end of the list, so a
/// loop that redrives would continue for as long as its messages die again.
#[derive(Clone, Copy, Debug)]
struct Bound {
    /// The server's clock at the start. Messages that died later are not listed.
    until: Timestamp,
    /// How many messages may still be listed. If the clock steps back, new deaths look old.
    left: u64,
}

impl Listing {
    pub(super) const fn new(client: Client, status: Listed) -> Self {
        let (bound, filter) = (None, None);
        Self { client, status, after: None, page_size: MAX_PAGE, ended: false, bound, filter }
    }

    /// Lists the messages that are dead letters now.
    pub(super) async fn dead_letters(client: Client) -> Result<Self, Error> {
        let Applied { at: until, reply, .. } = client.apply(&Op::Stats).await?;
        let Reply::Stats(stats) = reply else { return Err(Error::unexpected_reply()) };
        let bound = Some(Bound { until, left: stats.dead });
        Ok(Self { bound, ..Self::new(client, Listed::Dead) })
    }

    /// For a listing of dead letters, the server's clock when
    /// [`Queue::dead_letters`](crate::Queue::dead_letters) was called: later deaths are not listed.
    /// `None` for other listings.
    #[must_use]
    pub fn until(&self) -> Option<Timestamp> {
        self.bound.map(|bound| bound.until)
    }

    /// Lists only the dead letters that match. Reads only letters that died in the time range of
    /// the filter, beginning at its start or [`after`](Self::after) a later position. In a listing
    /// of another status, nothing matches.
    ///
    /// See [`DeadLetterFilter`] for an example.
    #[must_use]
    pub fn matching(mut self, filter: DeadLetterFilter) -> Self {
        self.after = self.after.max(filter.start());
        self.filter = Some(filter);
        self
    }

    /// Starts after a position, such as the [`position`](Self::position) that another process has
    /// reached in a listing of the same status.
    #[must_use]
    pub const fn after(mut self, position: Position) -> Self {
        (self.after, self.ended) = (Some(position), false);
        self
    }

    /// Sets the maximum number of messages per page: 1 to 100, 100 by default. With any other
    /// number, reading the next page fails.
    #[must_use]
    pub const fn page_size(mut self, messages: usize) -> Self {
        self.page_size = messages;
        self
    }

    /// The position where the next page starts: `None` before the first page and after the last.
    /// The next page may be empty. The position stays valid whatever happens to the message there.
    #[must_use]
    pub const fn position(&self) -> Option<Position> {
        self.after
    }

    /// Returns the next page, or `None` after the last. A message that changes its position while
    /// the listing is in progress may be listed twice or not at all.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, no page is lost: the next call returns the same page.
    ///
    /// # Errors
    ///
    /// See [`Queue::patience`](crate::Queue::patience). Call again to retry the
    /// page.
    pub async fn next_page(&mut self) -> Result<Option<Vec<MessageInfo>>, Error> {
        while !self.ended {
            let list = List::new(self.status.into(), self.page_size).after(self.after);
            let reply = self.client.apply(&Op::List(list)).await?.reply;
            let Reply::List(mut page) = reply else { return Err(Error::unexpected_reply()) };
            // A page that does not advance would repeat forever.
            self.ended = page.next.is_none() || page.next == self.after;
            self.after = page.next;
            if let Some(bound) = &mut self.bound {
                self.ended |= bound.cut(&mut page.messages);
            }
            if let Some(filter) = &self.filter {
                let died = page.messages.last().and_then(|letter| match letter.state {
                    MessageState::Dead { since, .. } => Some(since),
                    _ => None,
                });
                self.ended |= died.is_some_and(|since| filter.excludes_from(since));
                page.messages.retain(|letter| filter.matches(letter));
            }
            if !page.messages.is_empty() {
                return Ok(Some(page.messages));
            }
        }
        Ok(None)
    }
}

impl Listing {
    /// Converts this listing to a stream of its messages, read page by page. The stream ends after
    /// the last page, or after an error.
    ///
    /// ```
    /// # use delayline::Queue;
    /// # use delayline::admin::Listed;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), delayline::Error> {
    /// # let queue: Queue<u64> = delayline::connect("memory:").await?.queue("numbers").await?;
    /// use futures_util::TryStreamExt as _;
    ///
    /// let mut scheduled = queue.list(Listed::Scheduled).into_stream();
    /// while let Some(message) = scheduled.try_next().await? {
    ///     println!("{} is due at {}", message.id, message.due);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn into_stream(
        self,
    ) -> impl Stream<Item = Result<MessageInfo, Error>> + Send + Unpin + 'static {
        let pages = try_unfold(self, async |mut listing| {
            let page = listing.next_page().await?;
            Ok::<_, Error>(page.map(|page| (iter(page.into_iter().map(Ok)), listing)))
        });
        Box::pin(pages.try_flatten())
    }
}

impl Bound {
    /// Removes items beyond the bound; returns whether the listing has ended.
    fn cut(&mut self, letters: &mut Vec<MessageInfo>) -> bool {
        let died_later = |letter: &MessageInfo| match letter.state {
            MessageState::Dead { since, .. } => since > self.until,
            _ => false,
        };
        let most = usize::try_from(self.left).unwrap_or(usize::MAX);
        let end = letters.iter().position(died_later).unwrap_or(letters.len()).min(most);
        let cut = end < letters.len();
        letters.truncate(end);
        self.left = self.left.saturating_sub(u64::try_from(end).unwrap_or(u64::MAX));
        cut || self.left == 0
    }
}

pub(super) async fn redrive_all<T: ?Sized, C>(
    queue: &Queue<T, C>,
    delay: Duration,
) -> Result<u64, Error> {
    // Refused even if there is nothing to redrive.
    valid_delay(delay)?;
    let mut letters = queue.dead_letters().await?;
    let mut redriven = 0_u64;
    while let Some(page) = letters.next_page().await? {
        let results =
            queue.redrive_many_in(page.into_iter().map(|letter| letter.id), delay).await?;
        let done = results.iter().filter(|result| matches!(result, Redriven::Done { .. }));
        redriven = redriven.saturating_add(u64::try_from(done.count()).unwrap_or(u64::MAX));
    }
    Ok(redriven)
}

/// The findings of an audit of a whole queue, or of a repair, which has fixed them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Audit {
    /// The number of messages examined.
    pub examined: u64,
    /// The findings. Empty if nothing is wrong.
    pub findings: Vec<Finding>,
}

pub(super) async fn audit(client: &Client) -> Result<Audit, Error> {
    pass(client, Op::Check, 0).await
}

pub(super) async fn repair(client: &Client) -> Result<Audit, Error> {
    let mut repaired = Audit::default();
    for _ in 0..MAX_PASSES {
        let pass = pass(client, Op::Repair, MAX_PAGES_IN_PLACE).await?;
        let done = pass.findings.is_empty();
        repaired.examined = repaired.examined.max(pass.examined);
        repaired.findings.extend(pass.findings);
        if done {
            break;
        }
    }
    Ok(repaired)
}

/// Goes through the queue once. A page that repairs something may continue where it began, up to
/// `in_place` times one after the other.
async fn pass(client: &Client, op: impl Fn(Check) -> Op, in_place: usize) -> Result<Audit, Error> {
    let mut audit = Audit::default();
    let (mut after, mut stays) = (None, 0);
    loop {
        let reply = client.apply(&op(Check::new(MAX_PAGE).after(after))).await?.reply;
        let (Reply::Check(page) | Reply::Repair(page)) = reply else {
            return Err(Error::unexpected_reply());
        };
        audit.examined = audit.examined.saturating_add(page.examined);
        let found = !page.findings.is_empty();
        audit.findings.extend(page.findings);
        stays = if page.next == after { stays + 1 } else { 0 };
        if page.next.is_none() || stays > 0 && !found || stays > in_place {
            return Ok(audit);
        }
        after = page.next;
    }
}

/// Enough for 500,000 slots without a lease. It ends a repair that finds the same again.
const MAX_PAGES_IN_PLACE: usize = 1_000;

/// A later pass may have to examine messages that an earlier one has moved.
const MAX_PASSES: usize = 3;
