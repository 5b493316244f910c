//! How many messages of each group are due, and how many workers hold.

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
    /// Number of messages that workers hold.
    pub leased: u64,
    /// The earliest due time of the waiting ones. `None` if none waits.
    pub oldest_due: Option<Timestamp>,
}

impl GroupCount {
    /// Counts the ready and leased messages of each group, in no particular order. Reads all of
    /// them: a call to the server for each 100 messages.
    ///
    /// Messages that change their state meanwhile may be counted twice or not at all.
    ///
    /// # Errors
    ///
    /// Those of [`Queue::list`].
    pub async fn all(queue: &Queue<Bytes, Raw>) -> Result<Vec<Self>, Error> {
        let mut counts: HashMap<Group, Self> = HashMap::new();
        for state in [Listed::Leased, Listed::Ready] {
            let mut listing = queue.list(state);
            while let Some(page) = listing.next_page().await? {
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
            }
        }
        Ok(counts.into_values().collect())
    }

    /// The count as JSON: `group`, `ready`, `leased` and `oldest_due`.
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
