//! The limits of a queue.

use delayline_core::{Limits, Op, Reply, SetLimits};

use super::Queue;
use crate::Error;

impl<T: ?Sized, C> Queue<T, C> {
    /// Returns the limits on deliveries of this queue, over all workers
    /// and for each group ([G34](crate::guarantees#g34), [G36](crate::guarantees#g36),
    /// [G37](crate::guarantees#g37)). [`stats`](Self::stats) returns them with the counts.
    ///
    /// # Cancel safety
    ///
    /// This call changes nothing; its future can be dropped.
    ///
    /// # Errors
    ///
    /// See [`patience`](Self::patience).
    pub async fn limits(&self) -> Result<Limits, Error> {
        Ok(self.stats().await?.limits)
    }

    /// Changes limits of this queue, at once and for all workers ([G34](crate::guarantees#g34)).
    /// Limits that `set` does not mention stay unchanged. Returns whether anything changed.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use delayline::Queue;
    /// use delayline::admin::{Rate, SetLimits};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), delayline::Error> {
    /// # let calls: Queue<u64> = delayline::connect("memory:").await?.queue("calls").await?;
    /// // A provider allows three calls at once, and ten per second.
    /// calls.set_limits(SetLimits::new().leased(3).rate(Rate::per_second(10, 2))).await?;
    /// // It is overloaded: no call for 30 s, whatever is due.
    /// calls.set_limits(SetLimits::new().hold_for(Duration::from_secs(30))).await?;
    /// // End both the hold and the rate.
    /// calls.set_limits(SetLimits::new().end_hold().rate(None)).await?;
    /// assert_eq!(calls.limits().await?.leased, Some(3));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Two settings limit the messages of each group, such as a tenant
    /// ([G36](crate::guarantees#g36), [G37](crate::guarantees#g37)):
    ///
    /// ```
    /// # use delayline::Queue;
    /// use delayline::admin::SetLimits;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), delayline::Error> {
    /// # let mails: Queue<u64> = delayline::connect("memory:").await?.queue("mails").await?;
    /// # let events: Queue<u64> = delayline::connect("memory:").await?.queue("events").await?;
    /// // At most two mails of each tenant at once.
    /// mails.set_limits(SetLimits::new().each_group(2)).await?;
    /// // The events of a customer one after the other, in the order sent.
    /// events.set_limits(SetLimits::new().in_order(true)).await?;
    /// assert!(events.limits().await?.in_order);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the limits may or may not have changed. The call can be repeated.
    ///
    /// # Errors
    ///
    /// [`Violation`](crate::Violation): a limit is out of its range, and nothing changes. See also
    /// [`patience`](Self::patience).
    #[doc(alias = "concurrency")]
    #[doc(alias = "rate_limit")]
    #[doc(alias = "throttle")]
    pub async fn set_limits(&self, set: SetLimits) -> Result<bool, Error> {
        match self.ask(&Op::SetLimits(set)).await? {
            Reply::SetLimits { changed } => Ok(changed),
            _ => Err(Error::unexpected_reply()),
        }
    }
}
