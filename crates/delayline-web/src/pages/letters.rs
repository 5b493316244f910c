//! Where the dead letters of a page come from.

use delayline::admin::{DeadLetterFilter, Listed, Listing, Position};
use delayline::codec::Raw;
use delayline::message::{MessageInfo, MessageState};
use delayline::{Bytes, Error, Queue, Timestamp};
use delayline_admin::LatestLetters;

/// Where the letters come from.
pub(super) enum Source {
    Oldest(Listing),
    Newest(LatestLetters),
}

/// Letters from a position on in the order of the page. Leaves out letters that died outside of the
/// wanted times.
pub(super) fn source(
    queue: &Queue<Bytes, Raw>,
    now: Timestamp,
    page: usize,
    wanted: &DeadLetterFilter,
    newest: bool,
    position: Option<Position>,
) -> Source {
    if newest {
        let latest = LatestLetters::new(queue.clone(), now).page_size(page);
        let end = position.into_iter().chain(wanted.end()).min();
        return Source::Newest(match end {
            Some(end) => latest.before(end),
            None => latest,
        });
    }
    let listing = queue.list(Listed::Dead).page_size(page);
    Source::Oldest(match wanted.start().max(position) {
        Some(position) => listing.after(position),
        None => listing,
    })
}

impl Source {
    pub(super) async fn next_page(&mut self) -> Result<Option<Vec<MessageInfo>>, Error> {
        match self {
            Self::Oldest(listing) => listing.next_page().await,
            Self::Newest(letters) => letters.next_page().await,
        }
    }

    pub(super) fn position(&self) -> Option<Position> {
        match self {
            Self::Oldest(listing) => listing.position(),
            Self::Newest(letters) => letters.position(),
        }
    }

    /// Whether no letter from this one on can match.
    pub(super) fn is_over(&self, wanted: &DeadLetterFilter, letter: &MessageInfo) -> bool {
        let MessageState::Dead { since, .. } = letter.state else { return false };
        match self {
            Self::Oldest(_) => wanted.excludes_from(since),
            Self::Newest(_) => wanted.start().is_some_and(|start| since < start.instant),
        }
    }
}
