//! Dead letters, listings, audits and repairs of a queue.

use std::time::{Duration, SystemTime};

use delayline_core::limits::MAX_BATCH;
use delayline_core::{
    MessageId, MessageInfo, Op, Position, Purged, Redrive, Redriven, Reply, Schedule,
};

use super::{Audit, Listed, Listing, Queue, listing, only};
use crate::Error;
use crate::error::{DUE, timestamp, valid_delay};
use crate::shards::cursor_of;

impl<T: ?Sized, C> Queue<T, C> {
    /// Makes a dead letter due at once; its failures and crashes are counted from 0 again
    /// ([G11](crate::guarantees#g11)).
    ///
    /// If the reply to the first attempt was lost, a message redriven by this call may be reported
    /// as [`Redriven::NotDead`]: it is live in both cases.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the message may or may not be redriven. The call can be repeated.
    ///
    /// # Errors
    ///
    /// Like [`cancel`](Self::cancel).
    #[doc(alias = "requeue")]
    #[doc(alias = "DLQ")]
    pub async fn redrive<I>(&self, id: I) -> Result<Redriven, Error>
    where
        I: TryInto<MessageId, Error: Into<Error>>,
    {
        self.redrive_in(id, Duration::ZERO).await
    }

    /// Like [`redrive`](Self::redrive), but makes the message due `delay` from now, up to 100
    /// years.
    ///
    /// # Cancel safety
    ///
    /// Like [`redrive`](Self::redrive).
    ///
    /// # Errors
    ///
    /// Like [`cancel`](Self::cancel); also if the delay is longer than 100 years.
    pub async fn redrive_in<I>(&self, id: I, delay: Duration) -> Result<Redriven, Error>
    where
        I: TryInto<MessageId, Error: Into<Error>>,
    {
        only(self.redrive_many_in([id], delay).await?)
    }

    /// Like [`redrive`](Self::redrive), but makes the message due at an instant. A past instant
    /// means now.
    ///
    /// # Cancel safety
    ///
    /// Like [`redrive`](Self::redrive).
    ///
    /// # Errors
    ///
    /// Like [`cancel`](Self::cancel); also if the instant is beyond the year 9999.
    pub async fn redrive_at<I>(&self, id: I, due: SystemTime) -> Result<Redriven, Error>
    where
        I: TryInto<MessageId, Error: Into<Error>>,
    {
        only(self.redrive_many_at([id], due).await?)
    }

    /// Redrives many dead letters, in as few operations as possible. Returns one result per id, in
    /// order, like [`redrive`](Self::redrive). The operations are not one atomic step.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, some of the messages may be redriven. The call can be repeated.
    ///
    /// # Errors
    ///
    /// Like [`cancel_many`](Self::cancel_many).
    pub async fn redrive_many<I>(
        &self,
        ids: impl IntoIterator<Item = I>,
    ) -> Result<Vec<Redriven>, Error>
    where
        I: TryInto<MessageId, Error: Into<Error>>,
    {
        self.redrive_many_in(ids, Duration::ZERO).await
    }

    /// Like [`redrive_many`](Self::redrive_many), but makes the messages due `delay` from now, up
    /// to 100 years.
    ///
    /// # Cancel safety
    ///
    /// Like [`redrive_many`](Self::redrive_many).
    ///
    /// # Errors
    ///
    /// Like [`cancel_many`](Self::cancel_many); also if the delay is longer than 100 years.
    pub async fn redrive_many_in<I>(
        &self,
        ids: impl IntoIterator<Item = I>,
        delay: Duration,
    ) -> Result<Vec<Redriven>, Error>
    where
        I: TryInto<MessageId, Error: Into<Error>>,
    {
        self.redrive_all_of(ids, Schedule::In(valid_delay(delay)?)).await
    }

    /// Like [`redrive_many`](Self::redrive_many), but makes the messages due at an instant. A past
    /// instant means now.
    ///
    /// # Cancel safety
    ///
    /// Like [`redrive_many`](Self::redrive_many).
    ///
    /// # Errors
    ///
    /// Like [`cancel_many`](Self::cancel_many); also if the instant is beyond the year 9999.
    pub async fn redrive_many_at<I>(
        &self,
        ids: impl IntoIterator<Item = I>,
        due: SystemTime,
    ) -> Result<Vec<Redriven>, Error>
    where
        I: TryInto<MessageId, Error: Into<Error>>,
    {
        self.redrive_all_of(ids, Schedule::At(timestamp(DUE, due)?)).await
    }

    async fn redrive_all_of<I>(
        &self,
        ids: impl IntoIterator<Item = I>,
        schedule: Schedule,
    ) -> Result<Vec<Redriven>, Error>
    where
        I: TryInto<MessageId, Error: Into<Error>>,
    {
        let op = |ids| Op::Redrive(Redrive::new(ids, schedule));
        self.each(MAX_BATCH, ids, op, |reply| match reply {
            Reply::Redrive(items) => Some(items),
            _ => None,
        })
        .await
    }

    /// Redrives all messages that are dead letters now, page by page, and returns their number. A
    /// message that dies again during the call is not redriven twice, so the call ends however
    /// quickly messages die.
    ///
    /// ```
    /// # use delayline::Queue;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), delayline::Error> {
    /// # let queue: Queue<u64> = delayline::connect("memory:").await?.queue("numbers").await?;
    /// let redriven = queue.redrive_all().await?;
    /// println!("{redriven} messages get another chance");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the messages redriven so far stay redriven. Call this again for
    /// the rest, which includes messages that have died again.
    ///
    /// # Errors
    ///
    /// Like [`redrive`](Self::redrive).
    #[doc(alias = "DLQ")]
    pub async fn redrive_all(&self) -> Result<u64, Error> {
        self.redrive_all_in(Duration::ZERO).await
    }

    /// Like [`redrive_all`](Self::redrive_all), but makes each message due `delay` from its
    /// redrive, up to 100 years.
    ///
    /// # Cancel safety
    ///
    /// Like [`redrive_all`](Self::redrive_all).
    ///
    /// # Errors
    ///
    /// Like [`redrive`](Self::redrive); also if the delay is longer than 100 years.
    pub async fn redrive_all_in(&self, delay: Duration) -> Result<u64, Error> {
        listing::redrive_all(self, delay).await
    }

    /// Deletes a dead letter.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the dead letter may or may not be deleted. The call can be
    /// repeated.
    ///
    /// # Errors
    ///
    /// Like [`cancel`](Self::cancel).
    #[doc(alias = "delete")]
    pub async fn purge<I>(&self, id: I) -> Result<Purged, Error>
    where
        I: TryInto<MessageId, Error: Into<Error>>,
    {
        only(self.purge_many([id]).await?)
    }

    /// Deletes many dead letters, in as few operations as possible. Returns one result per id, in
    /// order. The operations are not one atomic step.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, some of the dead letters may be deleted. The call can be repeated.
    ///
    /// # Errors
    ///
    /// Like [`cancel_many`](Self::cancel_many).
    pub async fn purge_many<I>(
        &self,
        ids: impl IntoIterator<Item = I>,
    ) -> Result<Vec<Purged>, Error>
    where
        I: TryInto<MessageId, Error: Into<Error>>,
    {
        self.each(MAX_BATCH, ids, Op::Purge, |reply| match reply {
            Reply::Purge(items) => Some(items),
            _ => None,
        })
        .await
    }

    /// Lists the messages of one status, page by page.
    #[must_use]
    pub fn list(&self, status: Listed) -> Listing {
        Listing::new(self.client.clone(), status)
    }

    /// Returns the position of a message in the list of a status, after which a
    /// [listing](Listing::after) continues. Positions of one index are in the order of the list.
    /// `None` for a ready message with a group, whose position is known to its listing only.
    #[must_use]
    pub fn position_in(&self, status: Listed, message: &MessageInfo) -> Option<Position> {
        cursor_of(self.client.shards(), status.into(), message)
    }

    /// Lists the messages that are dead letters now, page by page, oldest death first. Messages
    /// that die later are not included, so a loop that redrives each page ends;
    /// [`redrive_all`](Self::redrive_all) is that loop. [`Listing::matching`] filters by reason,
    /// error and time.
    ///
    /// # Cancel safety
    ///
    /// This call changes nothing; its future can be dropped.
    ///
    /// # Errors
    ///
    /// See [`patience`](Self::patience).
    #[doc(alias = "DLQ")]
    pub async fn dead_letters(&self) -> Result<Listing, Error> {
        Listing::dead_letters(self.client.clone()).await
    }

    /// Audits the whole queue, page by page ([G1](crate::guarantees#g1),
    /// [G22](crate::guarantees#g22)). The queue can stay in use.
    ///
    /// # Cancel safety
    ///
    /// This call changes nothing; its future can be dropped.
    ///
    /// # Errors
    ///
    /// See [`patience`](Self::patience).
    pub async fn check(&self) -> Result<Audit, Error> {
        listing::audit(&self.client).await
    }

    /// Repairs the findings of [`check`](Self::check), page by page, until a pass finds nothing, in
    /// at most three passes. Returns the findings. The queue can stay in use.
    ///
    /// Afterwards each message is in exactly one state. If only half of an operation was applied to
    /// it, that is the state before or after the operation. A message that cannot be read, or whose
    /// due time is lost, becomes a dead letter. It can be inspected and purged, or redriven if its
    /// record is intact. Messages without any data left are counted as purged
    /// ([G20](crate::guarantees#g20)).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the repairs so far are kept. Call this again to continue.
    ///
    /// # Errors
    ///
    /// See [`patience`](Self::patience). Call this again to continue.
    pub async fn repair(&self) -> Result<Audit, Error> {
        listing::repair(&self.client).await
    }
}
