//! Queries how far the messages that another one waits for have come.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use delayline_core::limits::MAX_BATCH;
use delayline_core::{At, Backend, Completion, Error, ErrorKind, Op, QueueName, Reply};
use futures_util::future::join_all;
use tokio::time::timeout;

use super::member::{Ended, Member, OnFailure, Waiting, Why};
use super::siblings::Reach;
use super::wire;

/// The result of a check.
pub(super) enum Verdict {
    Deliver(Why),
    Cancel,
    /// The number of members that are left.
    Wait(usize),
}

/// One check of the members of a message.
pub(super) struct Check<'a> {
    reach: &'a Reach,
    at: At,
    members: &'a [Member],
    /// The end of each member, as it is stored.
    pub(super) ends: Vec<u8>,
    /// The results that this check has seen.
    pub(super) results: Vec<Option<Bytes>>,
    /// Which acks an earlier check has seen, so that their results must be queried.
    acked_before: Vec<usize>,
}

impl<'a> Check<'a> {
    pub(super) fn new(
        reach: &'a Reach,
        at: At,
        members: &'a [Member],
        seen: Option<Vec<u8>>,
    ) -> Self {
        let ends = seen.unwrap_or_else(|| vec![wire::UNKNOWN; members.len()]);
        let acked = ends.iter().enumerate().filter(|(_, end)| **end == wire::ACKED);
        let acked_before = acked.map(|(place, _)| place).collect();
        Self { reach, at, members, ends, results: vec![None; members.len()], acked_before }
    }

    /// Queries the members that may not have ended, each queue for at most this long.
    ///
    /// # Errors
    ///
    /// The first of those queues that could not be queried. The others are.
    pub(super) async fn query(&mut self, limit: Duration) -> Result<(), crate::Error> {
        let places = 0..self.ends.len();
        let left: Vec<_> = places.filter(|&place| !wire::is_final(self.ends[place])).collect();
        // Without a reply, it is not known whether a dead letter still is one.
        left.iter().for_each(|&place| self.ends[place] = wire::UNKNOWN);
        self.query_these(left, limit).await
    }

    /// Queries the results of members that an earlier check has seen acked.
    pub(super) async fn query_results(&mut self, limit: Duration) -> Result<(), crate::Error> {
        let acked = std::mem::take(&mut self.acked_before);
        self.query_these(acked, limit).await
    }

    async fn query_these(
        &mut self,
        places: Vec<usize>,
        limit: Duration,
    ) -> Result<(), crate::Error> {
        let mut by_queue = BTreeMap::<Option<&QueueName>, Vec<usize>>::new();
        for place in places {
            by_queue.entry(self.members[place].queue()).or_default().push(place);
        }
        let this = &*self;
        // All at once, so that up to 255 silent queues do not hide what the others answer.
        let queries = by_queue.into_iter().map(async |(queue, places)| {
            let mut found = Vec::new();
            let query = this.query_queue(queue, &places, &mut found);
            let silent = || Err(Error::new(ErrorKind::Timeout).into());
            let queried = timeout(limit, query).await.unwrap_or_else(|_| silent());
            (found, queried)
        });
        let mut queried = Ok(());
        for (found, result) in join_all(queries).await {
            for (place, completion) in found {
                if !wire::is_final(self.ends[place]) {
                    self.ends[place] = wire::code(&completion);
                }
                self.results[place] = completion.result().cloned();
            }
            if let Err(error) = result {
                tracing::warn!(%error, "the messages that another one waits for");
                queried = queried.and(Err(error));
            }
        }
        queried
    }

    /// Adds the completions that the queue returns to `found`, also before an error.
    async fn query_queue(
        &self,
        queue: Option<&QueueName>,
        mut places: &[usize],
        found: &mut Vec<(usize, Completion)>,
    ) -> Result<(), crate::Error> {
        let _permit = match queue {
            Some(_) => self.reach.may_query().await,
            None => None,
        };
        let backend = self.reach.queue(queue).await?;
        while !places.is_empty() {
            let batch = places.get(..MAX_BATCH).unwrap_or(places);
            let ids = batch.iter().map(|&place| self.members[place].id.clone()).collect();
            let reply = backend.apply(self.at, &Op::Progress(ids)).await?.reply;
            let Reply::Progress(all) = reply else {
                return Err(crate::Error::unexpected_reply());
            };
            // With large results, the reply is shorter.
            if all.is_empty() {
                return Err(crate::Error::unexpected_reply());
            }
            places = places.get(all.len()..).unwrap_or_default();
            found.extend(batch.iter().copied().zip(all));
        }
        Ok(())
    }

    /// A message that has been delivered before does not wait for members that are forgotten since:
    /// it ignores unknown ones.
    pub(super) fn verdict(
        &self,
        waiting: &Waiting,
        waited: Duration,
        ignores_unknown: bool,
    ) -> Verdict {
        let has_failed = self.ends.iter().any(|&end| wire::is_failure(end));
        let count = |code| self.ends.iter().filter(|&&end| end == code).count();
        let pending = count(wire::PENDING);
        match (waiting.on_failure, pending + count(wire::UNKNOWN)) {
            (OnFailure::Cancel, _) if has_failed => Verdict::Cancel,
            (OnFailure::Deliver, 1..) if has_failed => Verdict::Deliver(Why::Failure),
            (_, 0) => Verdict::Deliver(Why::AllEnded),
            _ if waited >= waiting.at_most => Verdict::Deliver(Why::TimeLimit),
            _ if ignores_unknown && pending == 0 => Verdict::Deliver(Why::AllEnded),
            (_, left) => Verdict::Wait(left),
        }
    }
}

/// Queries how far members have come.
///
/// # Errors
///
/// A member's queue could not be queried.
pub(crate) async fn query(reach: &Reach, members: &[Member]) -> Result<Vec<Ended>, crate::Error> {
    let mut check = Check::new(reach, At::Server, members, None);
    check.query(Duration::MAX).await?;
    let ends = members.iter().zip(check.ends).zip(check.results);
    Ok(ends
        .map(|((member, code), result)| Ended {
            member: member.clone(),
            completion: wire::completion(code, result).unwrap_or(Completion::Unknown),
        })
        .collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use std::sync::Arc;

    use async_trait::async_trait;
    use delayline_core::{MessageId, QueueBackend};
    use delayline_memory::MemoryBackend;

    use super::*;
    use crate::after::siblings::Siblings;
    use crate::local::Local;
    use crate::store::{FoundQueues, Store};

    /// Queues in memory, of which one never answers.
    #[derive(Debug)]
    struct OneIsSilent(Local<MemoryBackend>);

    #[async_trait]
    impl Store for OneIsSilent {
        async fn open(&self, name: QueueName) -> Result<Arc<dyn QueueBackend>, crate::Error> {
            if name.as_str() == "a-silent-one" {
                std::future::pending::<()>().await;
            }
            self.0.open(name).await
        }

        async fn queues(&self, most_keys: u64) -> Result<FoundQueues, crate::Error> {
            self.0.queues(most_keys).await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_queue_hides_no_end_in_another() {
        let store = OneIsSilent(Local::memory());
        let work = store.open("work".parse().unwrap()).await.unwrap();
        let id = MessageId::try_from("part").unwrap();
        let message = delayline_core::NewMessage::new(id.clone(), "");
        work.apply(At::Server, &Op::Enqueue(vec![message])).await.unwrap();
        work.apply(At::Server, &Op::Cancel(vec![id.clone()])).await.unwrap();
        let own: Arc<dyn QueueBackend> = Arc::new(MemoryBackend::new());
        let reach = Reach::new(own, Siblings::of(Arc::new(store)));
        let members = ["a-silent-one", "work"]
            .map(|queue| Member::new(Some(queue.parse().unwrap()), id.clone()));
        let mut check = Check::new(&reach, At::Server, &members, None);
        assert!(check.query(Duration::from_secs(2)).await.is_err());
        assert_eq!(check.ends[0], wire::UNKNOWN);
        assert!(wire::is_failure(check.ends[1]), "it is known to be cancelled");
    }
}
