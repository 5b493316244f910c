//! Which processes have workers, and the messages that each of them holds.

use std::collections::BTreeMap;

use delayline::admin::{Listed, ProcessId, WorkerProcess};
use delayline::codec::Raw;
use delayline::limits::MAX_PAGE;
use delayline::message::{MessageInfo, MessageState};
use delayline::{Bytes, Error, Queue};
use delayline_json::id;
use serde_json::{Value, json};

/// A process with workers, or one that holds messages, or both.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// `None` for messages whose backend does not report who holds them.
    pub id: Option<ProcessId>,
    /// What the process says about itself. `None` if it has not introduced itself.
    pub process: Option<WorkerProcess>,
    /// The messages that it holds, with their queues.
    pub held: Vec<(String, MessageInfo)>,
}

impl Holder {
    /// Assigns messages to the processes that hold them: first the processes that have introduced
    /// themselves, by host, and then the others.
    #[must_use]
    pub fn all(processes: Vec<WorkerProcess>, held: Vec<(String, MessageInfo)>) -> Vec<Self> {
        let known = processes.into_iter().map(|process| {
            let id = Some(process.id);
            (id, Self { id, process: Some(process), held: Vec::new() })
        });
        let mut all: BTreeMap<Option<ProcessId>, Self> = known.collect();
        for (queue, info) in held {
            let id = info.holder;
            let holder = all.entry(id).or_insert(Self { id, process: None, held: Vec::new() });
            holder.held.push((queue, info));
        }
        let mut all: Vec<Self> = all.into_values().collect();
        all.sort_by(|one, other| {
            let place = |holder: &Self| holder.process.as_ref().map(|it| (it.host.clone(), it.pid));
            (one.process.is_none(), place(one)).cmp(&(other.process.is_none(), place(other)))
        });
        all
    }

    /// The process as JSON. `places` says whether the reader may see host, number and address.
    #[must_use]
    pub fn json(&self, places: bool) -> Value {
        let process = self.process.as_ref();
        let queues = process.into_iter().flat_map(|process| &process.queues);
        let queues: Vec<Value> = queues
            .map(|(queue, handlers)| json!({ "queue": queue.as_str(), "handlers": handlers }))
            .collect();
        let held = self.held.iter().map(|(queue, info)| {
            let mut object = id(&info.id);
            object.insert("queue".to_owned(), queue.as_str().into());
            let deadline = deadline(info).map(|deadline| deadline.to_string());
            object.insert("deadline".to_owned(), deadline.into());
            Value::Object(object)
        });
        let place = process.filter(|_| places);
        json!({
            "process": self.id.map(|id| id.to_string()),
            "introduced": process.is_some(),
            "version": process.map(|it| &it.version),
            "host": place.map(|it| &it.host),
            "pid": place.map(|it| it.pid),
            "address": place.and_then(|it| it.address.as_ref()),
            "since": process.map(|it| it.since.to_string()),
            "handlers": process.map(|it| it.handlers),
            "queues": queues,
            "more_queues": process.map_or(0, |it| it.more_queues),
            "held": held.collect::<Vec<_>>(),
        })
    }
}

/// When the lease of a message ends.
fn deadline(info: &MessageInfo) -> Option<delayline::Timestamp> {
    match info.state {
        MessageState::Leased { deadline, .. } => Some(deadline),
        _ => None,
    }
}

/// Reads up to `most` leased messages of a queue, page by page, and those whose leases end first.
/// Returns whether there may be more.
///
/// # Errors
///
/// Like [`Queue::list`].
pub async fn leased(
    queue: &Queue<Bytes, Raw>,
    most: usize,
) -> Result<(Vec<MessageInfo>, bool), Error> {
    let (mut listing, mut messages) = (queue.list(Listed::Leased), Vec::new());
    while messages.len() < most {
        listing = listing.page_size(MAX_PAGE.min(most - messages.len()));
        let Some(page) = listing.next_page().await? else { return Ok((messages, false)) };
        messages.extend(page);
    }
    Ok((messages, listing.position().is_some()))
}

#[cfg(test)]
mod tests {
    use delayline::Timestamp;
    use delayline::backend::{Claim, ClaimId, ConsumerName, Millis, Op};

    use super::*;

    fn message(id: &str, holder: Option<u8>) -> (String, MessageInfo) {
        let state = MessageState::Leased { deadline: Timestamp::MAX, cancel_requested: false };
        let id = id.try_into().unwrap();
        let mut info = MessageInfo::new(id, state, 1, Timestamp::MIN, Timestamp::MIN);
        info.holder = holder.map(process_id);
        ("orders".to_owned(), info)
    }

    fn process_id(number: u8) -> ProcessId {
        ProcessId::from_bytes([number; ProcessId::BYTES])
    }

    #[tokio::test]
    async fn more_leases_than_a_page_has_are_read() {
        let connection = delayline::connect("memory:").await.unwrap();
        let queue: Queue<Bytes, Raw> = connection.queue("orders").await.unwrap().codec(Raw);
        let drafts = (0..250).map(|_| queue.message(&Bytes::new()));
        assert!(queue.send_many(drafts).await.iter().all(Result::is_ok));
        let (consumer, id) = (ConsumerName::try_from("c").unwrap(), ClaimId::from_bytes([7; 16]));
        let claim = Claim::new(consumer, id, 250, Millis::new(60_000).unwrap());
        queue.apply(&Op::Claim(claim)).await.unwrap();
        for (most, expected) in [(1, (1, true)), (101, (101, true)), (1_000, (250, false))] {
            let (messages, more) = leased(&queue, most).await.unwrap();
            assert_eq!((messages.len(), more), expected);
        }
    }

    #[test]
    fn messages_stand_with_their_processes_and_none_is_lost() {
        let process = |id, host| WorkerProcess::new(process_id(id), "1.0", host, 7, Timestamp::MIN);
        let held = [("a", Some(2)), ("b", Some(9)), ("c", None), ("d", Some(2)), ("e", Some(1))];
        let held = held.map(|(id, holder)| message(id, holder)).to_vec();
        let all = Holder::all(vec![process(1, "web-2"), process(2, "web-1")], held);
        let shown: Vec<_> = all
            .iter()
            .map(|it| {
                let ids: Vec<_> = it.held.iter().map(|(_, info)| info.id.to_string()).collect();
                (it.process.as_ref().map(|it| it.host.as_str()), ids.join(" "))
            })
            .collect();
        let expected = [(Some("web-1"), "a d"), (Some("web-2"), "e"), (None, "c"), (None, "b")];
        assert_eq!(shown, expected.map(|(host, ids)| (host, ids.to_owned())));

        let json = all[0].json(true);
        assert_eq!(
            (&json["host"], &json["pid"], &json["introduced"]),
            (&"web-1".into(), &7.into(), &true.into())
        );
        assert_eq!(json["held"][1]["id"], "d");
        let json = all[0].json(false);
        assert!(json["host"].is_null() && json["pid"].is_null() && json["version"] == "1.0");
        assert_eq!(all[2].json(true)["process"], Value::Null);
    }
}
