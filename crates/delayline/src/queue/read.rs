//! Looking up and counting messages.

use std::time::Duration;

use bytes::Bytes;
use delayline_core::limits::{MAX_DELAY_MS, MAX_LOOK_UP};
use delayline_core::{
    Applied, Completion, Forecast, History, MessageId, MessageInfo, MessageState, Op, Reply,
    Resolution, Stats, Timestamp,
};
use tokio::time::MissedTickBehavior;

use super::{Explanation, Found, Queue, only};
use crate::after::{Ended, Waiting, check};
use crate::codec::{Decode, Raw};
use crate::error::{message_id, millis};
use crate::{Error, telemetry};

impl<T, C: Decode<T>> Queue<T, C> {
    /// Returns the message with an id, including its value, or how that message ended.
    ///
    /// ```
    /// # use delayline::{Found, Queue};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), delayline::Error> {
    /// # let queue: Queue<u64> = delayline::connect("memory:").await?.queue("numbers").await?;
    /// let id = queue.send(&7).await?;
    /// let Found::Live(message) = queue.get(id).await? else { panic!("it was sent") };
    /// assert_eq!(message.payload, 7);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// This call changes nothing; its future can be dropped.
    ///
    /// # Errors
    ///
    /// Like [`cancel`](Self::cancel).
    #[doc(alias = "peek")]
    pub async fn get<I>(&self, id: I) -> Result<Found<T>, Error>
    where
        I: TryInto<MessageId, Error: Into<Error>>,
    {
        only(self.get_many([id]).await?)
    }

    /// Like [`get`](Self::get) for many ids: returns one result per id, in order. Each operation
    /// looks up at most 16 ids; several operations are not one snapshot.
    ///
    /// ```
    /// # use delayline::message::Status;
    /// # use delayline::{Found, Queue};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), delayline::Error> {
    /// # let queue: Queue<u64> = delayline::connect("memory:").await?.queue("numbers").await?;
    /// let id = queue.send(&7).await?;
    /// let known = queue.get_many([id.clone(), "order-1".try_into()?]).await?;
    /// assert!(matches!(&known[0], Found::Live(message) if message.info.id == id));
    /// assert_eq!(known[1], Found::Unknown);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// This call changes nothing; its future can be dropped.
    ///
    /// # Errors
    ///
    /// Like [`cancel`](Self::cancel); an id outside its limits fails the whole call before anything
    /// is sent.
    pub async fn get_many<I>(
        &self,
        ids: impl IntoIterator<Item = I>,
    ) -> Result<Vec<Found<T>>, Error>
    where
        I: TryInto<MessageId, Error: Into<Error>>,
    {
        let found = self.each(MAX_LOOK_UP, ids, Op::Get, |reply| match reply {
            Reply::Get(items) => Some(items),
            _ => None,
        });
        let found =
            found.await?.into_iter().map(|found| Found::read(found, self.encoding().as_ref()));
        found.collect::<Option<_>>().ok_or_else(Error::unexpected_reply)
    }
}

impl<T: ?Sized, C> Queue<T, C> {
    /// Waits until a message is acked, cancelled, purged, relayed or a dead letter, or until
    /// `limit` has passed; with zero, it queries once. Returns the progress of the message
    /// ([G32](crate::guarantees#g32)). For an unknown id, returns [`Completion::Unknown`] at once.
    ///
    /// The interval between queries is an eighth of the time waited so far, between 10 ms and 1 s.
    /// All waits for messages of one queue in a process share one task, whose calls query up to
    /// 1,000 messages each.
    ///
    /// If the sender asks for a result with [`Draft::keep_result`](crate::Draft::keep_result), a
    /// handler returns it with [`Outcome::AckWith`](crate::Outcome::AckWith). If a wait is
    /// interrupted, wait again.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use delayline::{Error, Job, Outcome, Completion, Queue, Worker};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let squares: Queue<u64> = delayline::connect("memory:").await?.queue("squares").await?;
    /// let worker = Worker::builder(squares.clone()).build()?;
    /// let handle = worker.handle();
    /// let running = tokio::spawn(worker.run(async |job: Job<u64>| {
    ///     let square = job.payload() * job.payload();
    ///     Ok::<_, Error>(Outcome::AckWith(square.to_string().into()))
    /// }));
    ///
    /// let sent = squares.message(&7).keep_result(Duration::from_secs(60)).send().await?;
    /// let progress = squares.wait_for(sent.id, Duration::from_secs(10)).await?;
    /// assert_eq!(progress, Completion::acked_with("49"));
    ///
    /// handle.stop(Duration::ZERO);
    /// # running.await.expect("the worker ends");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// This call changes nothing; its future can be dropped.
    ///
    /// # Errors
    ///
    /// Like [`cancel`](Self::cancel), or [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported)
    /// outside of a Tokio runtime. If the server does not reply, the wait ends at the latest 100
    /// ms after `limit`, or after one second if `limit` is shorter. The error is
    /// [`ErrorKind::Timeout`](crate::ErrorKind::Timeout), or that of the last call. If the message
    /// was pending in the last 2.5 seconds, the wait returns [`Completion::Pending`] instead.
    #[doc(alias = "join")]
    #[doc(alias = "wait_until_finished")]
    pub async fn wait_for<I>(&self, id: I, limit: Duration) -> Result<Completion, Error>
    where
        I: TryInto<MessageId, Error: Into<Error>>,
    {
        self.waiters.wait(&self.client, message_id(id)?, limit).await
    }

    /// Queries how far the members of a message have come that waits for them: one call per 1,000
    /// members of a queue. [`Message::waiting`](crate::message::Message::waiting) names them.
    ///
    /// # Cancel safety
    ///
    /// This call changes nothing; its future can be dropped.
    ///
    /// # Errors
    ///
    /// The error of the first member's queue that could not be queried. The calls are not repeated.
    pub async fn members_of(&self, waiting: &Waiting) -> Result<Vec<Ended>, Error> {
        check::query(self.client.reach(), &waiting.members).await
    }

    /// Explains why a message is not delivered now, or how it ended.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use delayline::Queue;
    /// # use delayline::admin::Explanation;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), delayline::Error> {
    /// # let orders: Queue<u64> = delayline::connect("memory:").await?.queue("orders").await?;
    /// let id = orders.send_in(&1234, Duration::from_secs(1800)).await?;
    /// println!("{}", orders.explain(id).await?); // It is due in 29 min 59 s.
    /// assert_eq!(orders.explain("order-1").await?, Explanation::Unknown);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The message and, if it is due, the counters and limits of the queue are read one after the
    /// other. If the members of a waiting message cannot be queried, [`Explanation::Waiting`] does
    /// not say how many are left.
    ///
    /// # Cancel safety
    ///
    /// This call changes nothing; its future can be dropped.
    ///
    /// # Errors
    ///
    /// Like [`cancel`](Self::cancel).
    pub async fn explain<I>(&self, id: I) -> Result<Explanation, Error>
    where
        I: TryInto<MessageId, Error: Into<Error>>,
    {
        let id = message_id(id)?;
        let Applied { at, reply, .. } = self.client.apply(&Op::Get(vec![id])).await?;
        let Reply::Get(found) = reply else { return Err(Error::unexpected_reply()) };
        let found = Found::<Bytes>::read(only(found)?, &Raw).ok_or_else(Error::unexpected_reply)?;
        let stats = match found.info() {
            Some(info) if info.state == MessageState::Ready => self.stats_near(info).await?.0,
            _ => Stats::default(),
        };
        let explanation = Explanation::new(&found, at, &stats);
        if let (Found::Live(message), Explanation::Waiting { .. }) = (&found, &explanation)
            && let Some(waiting) = &message.waiting
            && let Ok(ends) = self.members_of(waiting).await
        {
            return Ok(explanation.with_ends(&ends));
        }
        Ok(explanation)
    }

    /// Counts the messages in each state, and the events so far ([G22](crate::guarantees#g22)).
    ///
    /// # Cancel safety
    ///
    /// This call changes nothing; its future can be dropped.
    ///
    /// # Errors
    ///
    /// See [`patience`](Self::patience).
    pub async fn stats(&self) -> Result<Stats, Error> {
        match self.ask(&Op::Stats).await? {
            Reply::Stats(stats) => Ok(*stats),
            _ => Err(Error::unexpected_reply()),
        }
    }

    /// Counts like [`stats`](Self::stats), with the server's time then. If the queue has
    /// [shards](crate::Opening::shards), it counts only in the shard of this message, and the
    /// limits are the share of that shard.
    ///
    /// # Cancel safety
    ///
    /// This call changes nothing; its future can be dropped.
    ///
    /// # Errors
    ///
    /// See [`patience`](Self::patience).
    pub async fn stats_near(&self, info: &MessageInfo) -> Result<(Stats, Timestamp), Error> {
        let applied = self.client.near(info).apply(&Op::Stats).await?;
        match applied.reply {
            Reply::Stats(stats) => Ok((*stats, applied.at)),
            _ => Err(Error::unexpected_reply()),
        }
    }

    /// Counts the waiting messages by due time: due now, due within each of the delays from now but
    /// not within the previous one, and due later ([G22](crate::guarantees#g22)).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use delayline::Queue;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), delayline::Error> {
    /// # let orders: Queue<u64> = delayline::connect("memory:").await?.queue("orders").await?;
    /// orders.send_in(&1234, Duration::from_secs(1800)).await?;
    /// let [minute, hour] = [60, 3600].map(Duration::from_secs);
    /// let forecast = orders.forecast([minute, hour]).await?;
    /// assert_eq!((forecast.ready, forecast.later), (0, 0));
    /// assert_eq!(forecast.due, [0, 1]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// This call changes nothing; its future can be dropped.
    ///
    /// # Errors
    ///
    /// See [`patience`](Self::patience). Also, before anything is sent, if there are no delays or
    /// more than 100, if they do not ascend, or if one exceeds 100 years.
    pub async fn forecast(
        &self,
        delays: impl IntoIterator<Item = Duration>,
    ) -> Result<Forecast, Error> {
        let delay = |delay| millis("the forecast's delay in ms", delay, 0..=MAX_DELAY_MS);
        let delays = delays.into_iter().map(delay).collect::<Result<_, _>>()?;
        match self.ask(&Op::Forecast(delays)).await? {
            Reply::Forecast(forecast) => Ok(forecast),
            _ => Err(Error::unexpected_reply()),
        }
    }

    /// Returns the history of the queue: the last six hours, minute by minute, or the last 31 days,
    /// hour by hour ([G22](crate::guarantees#g22)). The server keeps it, whether or not anything
    /// monitors the queue.
    ///
    /// ```
    /// # use delayline::Queue;
    /// # use delayline::admin::Resolution;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), delayline::Error> {
    /// # let orders: Queue<u64> = delayline::connect("memory:").await?.queue("orders").await?;
    /// orders.send(&1234).await?;
    /// let history = orders.history(Resolution::Minutes).await?;
    /// for pair in history.points.windows(2) {
    ///     // A server that lost its data counts anew.
    ///     let sent = pair[1].totals.enqueued.saturating_sub(pair[0].totals.enqueued);
    ///     println!("{sent} messages sent in the minute from {}", pair[0].at);
    /// #   assert_eq!(sent, 1);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// This call changes nothing; its future can be dropped.
    ///
    /// # Errors
    ///
    /// See [`patience`](Self::patience).
    pub async fn history(&self, resolution: Resolution) -> Result<History, Error> {
        match self.ask(&Op::History(resolution)).await? {
            Reply::History(history) => Ok(history),
            _ => Err(Error::unexpected_reply()),
        }
    }

    /// Returns the time of the server's clock, which decides when messages are due and expire.
    ///
    /// # Cancel safety
    ///
    /// This call changes nothing; its future can be dropped.
    ///
    /// # Errors
    ///
    /// See [`patience`](Self::patience).
    pub async fn server_time(&self) -> Result<Timestamp, Error> {
        Ok(self.client.apply(&Op::Stats).await?.at)
    }

    /// Counts like [`stats`](Self::stats) and, with the feature `metrics`, updates the gauges
    /// described in [`telemetry`]. [`report_depths_every`](Self::report_depths_every) repeats this.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the gauges keep their previous values.
    ///
    /// # Errors
    ///
    /// See [`patience`](Self::patience).
    pub async fn report_depths(&self) -> Result<Stats, Error> {
        let applied = self.client.apply(&Op::Stats).await?;
        let Reply::Stats(stats) = applied.reply else { return Err(Error::unexpected_reply()) };
        telemetry::depths(self.client.label(), &stats, applied.at);
        Ok(*stats)
    }

    /// Calls [`report_depths`](Self::report_depths) at once and then every `interval`, until its
    /// future is dropped or its task is aborted. Run it in only one of the processes that share the
    /// queue. If a call fails, that is logged at level `WARN`, and the next call follows as usual.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use delayline::Queue;
    /// # async fn example(orders: Queue<u64>) {
    /// let reports = orders.clone();
    /// let reporting =
    ///     tokio::spawn(async move { reports.report_depths_every(Duration::from_secs(10)).await });
    /// # reporting.abort();
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the gauges keep their previous values.
    ///
    /// # Panics
    ///
    /// If `interval` is zero, or outside of a Tokio runtime.
    pub async fn report_depths_every(&self, interval: Duration) {
        let mut ticks = tokio::time::interval(interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if let Err(error) = self.report_depths().await {
                tracing::warn!(queue = self.client.label().as_str(), %error, "no depths");
            }
        }
    }
}
