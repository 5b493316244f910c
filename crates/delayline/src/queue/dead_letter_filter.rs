//! Filters of dead letters.

use std::time::SystemTime;

use delayline_core::{DeathReason, Group, MessageInfo, MessageState, Position, Timestamp};

use super::folded_error::folded_error;

/// A filter of dead letters. A letter matches if it meets all conditions; without conditions, all
/// match.
///
/// ```
/// # use delayline::Queue;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), delayline::Error> {
/// # let queue: Queue<u64> = delayline::connect("memory:").await?.queue("numbers").await?;
/// use delayline::admin::DeadLetterFilter;
/// use delayline::message::DeathReason;
///
/// let timed_out =
///     DeadLetterFilter::new().reason(DeathReason::MaxFailures).error_contains("timed out");
/// let mut letters = queue.dead_letters().await?.matching(timed_out);
/// while let Some(page) = letters.next_page().await? {
///     queue.redrive_many(page.into_iter().map(|letter| letter.id)).await?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadLetterFilter {
    reasons: Vec<DeathReason>,
    error: Option<String>,
    like: Option<String>,
    group: Option<Group>,
    since: Option<Timestamp>,
    before: Option<Timestamp>,
}

impl DeadLetterFilter {
    /// All dead letters.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            reasons: Vec::new(),
            error: None,
            like: None,
            group: None,
            since: None,
            before: None,
        }
    }

    /// Matches only letters that died for this reason. Several calls allow any of their reasons.
    #[must_use]
    pub fn reason(mut self, reason: DeathReason) -> Self {
        self.reasons.push(reason);
        self
    }

    /// Matches only letters whose last error contains this text, with the same case.
    #[must_use]
    pub fn error_contains(mut self, text: impl Into<String>) -> Self {
        self.error = Some(text.into());
        self
    }

    /// Matches only letters whose last error equals this one after
    /// [`folded_error`](crate::admin::folded_error). The empty text matches letters without an
    /// error.
    #[must_use]
    pub fn error_like(mut self, error: impl AsRef<str>) -> Self {
        self.like = Some(folded_error(error.as_ref()));
        self
    }

    /// Matches only letters of this group.
    #[must_use]
    pub fn group(mut self, group: Group) -> Self {
        self.group = Some(group);
        self
    }

    /// Matches only letters that died at this instant or later, by the server's clock.
    #[must_use]
    pub fn died_since(mut self, instant: SystemTime) -> Self {
        self.since = Some(Timestamp::try_from(instant).unwrap_or(Timestamp::MAX));
        self
    }

    /// Matches only letters that died before this instant, by the server's clock.
    #[must_use]
    pub fn died_before(mut self, instant: SystemTime) -> Self {
        self.before = Some(Timestamp::try_from(instant).unwrap_or(Timestamp::MAX));
        self
    }

    /// Returns `true` if there is no condition.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::new()
    }

    /// Returns `true` if the message is a dead letter and meets all conditions.
    #[must_use]
    pub fn matches(&self, message: &MessageInfo) -> bool {
        let MessageState::Dead { reason, since } = message.state else { return false };
        let error = || message.last_error.as_deref().unwrap_or_default();
        (self.reasons.is_empty() || self.reasons.contains(&reason))
            && self.error.as_ref().is_none_or(|text| error().contains(text))
            && self.like.as_ref().is_none_or(|text| folded_error(error()) == *text)
            && self.group.as_ref().is_none_or(|group| message.group.as_ref() == Some(group))
            && self.since.is_none_or(|instant| since >= instant)
            && !self.excludes_from(since)
    }

    /// The position where a listing of dead letters can start, because all earlier letters died too
    /// early.
    #[must_use]
    pub fn start(&self) -> Option<Position> {
        let instant = self.since?;
        Some(Position { index: Position::DEAD, instant, sequence: 0 })
    }

    /// The position where a listing from the latest death on can start, because all later letters
    /// died too late.
    #[must_use]
    pub fn end(&self) -> Option<Position> {
        let instant = self.before?;
        Some(Position { index: Position::DEAD, instant, sequence: 0 })
    }

    /// Returns `true` if no message that died at this instant or later can match.
    #[must_use]
    pub fn excludes_from(&self, instant: Timestamp) -> bool {
        self.before.is_some_and(|before| instant >= before)
    }
}
