//! Reading through a queue, page by page.

use delayline_core::limits::MAX_PAGE;
use delayline_core::{Check, Finding, List, MessageInfo, Op, Position, Reply, Status};

use crate::Error;
use crate::client::Client;

/// The messages of one status: made by [`Queue::list`](crate::Queue::list).
///
/// A dead letter that is revived while workers run may die again, and then stands at the end of the
/// list. Whoever revives all of them stops at the first that died after
/// [`Queue::server_time`](crate::Queue::server_time) at the start, or may never end.
///
/// ```
/// # use delayline::{Queue, Status};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), delayline::Error> {
/// # let queue: Queue<u64> = Queue::new(delayline::open("memory:", "numbers").await?);
/// let mut dead = queue.list(Status::Dead);
/// while let Some(page) = dead.next_page().await? {
///     queue.redrive(page.into_iter().map(|letter| letter.id)).await?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Listing {
    client: Client,
    status: Status,
    after: Option<Position>,
    page_size: usize,
    ended: bool,
}

impl Listing {
    pub(super) const fn new(client: Client, status: Status) -> Self {
        Self { client, status, after: None, page_size: MAX_PAGE, ended: false }
    }

    /// Begins after a place in the order of this status, such as the [`position`](Self::position)
    /// that another process has reached in the same status.
    #[must_use]
    pub const fn after(mut self, position: Position) -> Self {
        (self.after, self.ended) = (Some(position), false);
        self
    }

    /// How many messages a page has at most: 1 to 100, and 100 unless told. With any other number
    /// the next page is an error.
    #[must_use]
    pub const fn page_size(mut self, messages: usize) -> Self {
        self.page_size = messages;
        self
    }

    /// Where the next page begins: `None` before the first page and after the last. There may be
    /// nothing after it. It stays valid whatever happens to the message that stood there.
    #[must_use]
    pub const fn position(&self) -> Option<Position> {
        self.after
    }

    /// The next page; `None` after the last. What changes its place while the
    /// listing goes on may be seen twice or not at all.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`]; see [`Queue::patience`](crate::Queue::patience). The page can be asked
    /// for again.
    pub async fn next_page(&mut self) -> Result<Option<Vec<MessageInfo>>, Error> {
        while !self.ended {
            let list = List { status: self.status, after: self.after, limit: self.page_size };
            let reply = self.client.apply(&Op::List(list)).await?.reply;
            let Reply::List(page) = reply else { return Err(Error::unexpected_reply()) };
            // A page that leads nowhere would go on for ever.
            self.ended = page.next.is_none() || page.next == self.after;
            self.after = page.next;
            if !page.messages.is_empty() {
                return Ok(Some(page.messages));
            }
        }
        Ok(None)
    }
}

/// What an audit of a whole queue has found, or a repair has mended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Audit {
    /// How many messages it looked at.
    pub examined: u64,
    /// What is wrong. Empty is good.
    pub findings: Vec<Finding>,
}

pub(super) async fn audit(client: &Client) -> Result<Audit, Error> {
    pass(client, Op::Check).await
}

pub(super) async fn repair(client: &Client) -> Result<Audit, Error> {
    let mut repaired = Audit::default();
    for _ in 0..MAX_PASSES {
        let pass = pass(client, Op::Repair).await?;
        let done = pass.findings.is_empty();
        repaired.examined = repaired.examined.max(pass.examined);
        repaired.findings.extend(pass.findings);
        if done {
            break;
        }
    }
    Ok(repaired)
}

async fn pass(client: &Client, op: impl Fn(Check) -> Op) -> Result<Audit, Error> {
    let mut audit = Audit::default();
    let mut after = None;
    loop {
        let reply = client.apply(&op(Check { after, limit: MAX_PAGE })).await?.reply;
        let (Reply::Check(page) | Reply::Repair(page)) = reply else {
            return Err(Error::unexpected_reply());
        };
        audit.examined = audit.examined.saturating_add(page.examined);
        audit.findings.extend(page.findings);
        if page.next.is_none() || page.next == after {
            return Ok(audit);
        }
        after = page.next;
    }
}

/// What one pass moves another may have to look at.
const MAX_PASSES: usize = 3;
