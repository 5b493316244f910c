//! Counts of due and leased messages by group.

use std::collections::HashMap;

use delayline::admin::Listed;
use delayline::codec::Raw;
use delayline::message::Group;
use delayline::{Bytes, Error, Queue, Timestamp};
use serde_json::{Value, json};

/// The due and leased messages of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupCount {
    /// The group.
    pub group: Group,
    /// Number of messages that are due and wait for a worker.
    pub ready: u64,
    /// Number of leased messages.
    pub leased: u64,
    /// The earliest due time of the ready messages, or `None` if there are none.
    pub oldest_due: Option<Timestamp>,
}

impl GroupCount {
    /// Counts the ready and leased messages of each group, in no particular order. Reads all of
    /// them, with a call to the server for each 100 messages, and keeps one count in memory for
    /// each group.
    ///
    /// Messages that change their state meanwhile may be counted twice or not at all.
    ///
    /// # Cancel safety
    ///
    /// This call changes nothing; its future can be dropped.
    ///
    /// # Errors
    ///
    /// Those of [`Queue::list`].
    pub async fn all(queue: &Queue<Bytes, Raw>) -> Result<Vec<Self>, Error> {
        Ok(Self::within(queue, usize::MAX).await?.0)
    }

    /// Like [`all`](Self::all), but reads only the first `most` leased and the first `most` ready
    /// messages, rounded up to whole pages. Returns also whether these were all.
    ///
    /// # Cancel safety
    ///
    /// This call changes nothing; its future can be dropped.
    ///
    /// # Errors
    ///
    /// Those of [`Queue::list`].
    pub async fn within(
        queue: &Queue<Bytes, Raw>,
        most: usize,
    ) -> Result<(Vec<Self>, bool), Error> {
        let mut counts: HashMap<Group, Self> = HashMap::new();
        let mut are_all = true;
        for state in [Listed::Leased, Listed::Ready] {
            let (mut listing, mut read) = (queue.list(state), 0);
            while let Some(page) = listing.next_page().await? {
                read += page.len();
                for message in page {
                    let Some(group) = message.group else { continue };
                    let count = counts.entry(group.clone());
                    let count =
                        count.or_insert(Self { group, ready: 0, leased: 0, oldest_due: None });
                    if state == Listed::Leased {
                        count.leased += 1;
                    } else {
                        count.ready += 1;
                        let oldest = count.oldest_due.map_or(message.due, |it| it.min(message.due));
                        count.oldest_due = Some(oldest);
                    }
                }
                if read >= most {
                    are_all &= listing.position().is_none();
                    break;
                }
            }
        }
        Ok((counts.into_values().collect(), are_all))
    }

    /// Returns the counts as JSON: `group`, `ready`, `leased` and `oldest_due`.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "group": self.group.as_str(),
            "ready": self.ready,
            "leased": self.leased,
            "oldest_due": self.oldest_due.map(|due| due.to_string()),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use delayline::backend::{At, Backend as _, Claim, ClaimId, Millis, NewMessage, Op};
    use delayline_memory::MemoryBackend;

    use super::*;

    #[tokio::test]
    async fn waiting_and_leased_messages_are_counted_by_group() {
        let at = |ms| Timestamp::from_ms(ms).unwrap();
        let backend = Arc::new(MemoryBackend::with_manual_clock(at(1_000)));
        let send = async |id: &str, group: Option<&str>| {
            let message = NewMessage::new(id.try_into().unwrap(), "");
            let message = message.group(group.map(|group| Group::new(group).unwrap()));
            backend.apply(At::Server, &Op::Enqueue(vec![message])).await.unwrap();
        };
        send("a1", Some("a")).await;
        let id = ClaimId::from_bytes([0; ClaimId::BYTES]);
        let claim = Claim::new("c".try_into().unwrap(), id, 1, Millis::saturating(60_000));
        backend.apply(At::Server, &Op::Claim(claim)).await.unwrap();
        backend.advance(Millis::saturating(5));
        for (message, group) in
            [("a2", Some("a")), ("a3", Some("a")), ("b1", Some("b")), ("x", None)]
        {
            send(message, group).await;
        }
        let queue = Queue::new(Arc::clone(&backend) as _).codec(Raw);
        let mut counts = GroupCount::all(&queue).await.unwrap();
        counts.sort_by_key(|count| count.group.to_string());
        let counts =
            counts.iter().map(|it| (it.group.as_str(), it.ready, it.leased, it.oldest_due));
        let due = Some(at(1_005));
        assert_eq!(counts.collect::<Vec<_>>(), [("a", 2, 1, due), ("b", 1, 0, due)]);
        for n in 0..100 {
            send(&n.to_string(), Some("c")).await;
        }
        let (counts, are_all) = GroupCount::within(&queue, 1).await.unwrap();
        let ready: u64 = counts.iter().map(|it| it.ready).sum();
        assert!(!are_all && ready < 103, "{counts:?}");
    }
}
