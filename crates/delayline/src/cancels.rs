//! Cancels of messages that workers of this process may hold.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use delayline_core::MessageId;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Reports to the workers of a connection's queues, or of a queue's clones, which messages were
/// cancelled while they were leased. So their handlers need not wait for the next heartbeat.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cancels(Arc<Mutex<Workers>>);

/// Where to tell the workers of each queue.
type Workers = BTreeMap<String, Vec<UnboundedSender<MessageId>>>;

impl Cancels {
    /// Returns the cancels of messages of this queue from now on, until the receiver is dropped.
    pub(crate) fn listen(&self, queue: &str) -> UnboundedReceiver<MessageId> {
        let (sender, receiver) = unbounded_channel();
        let mut workers = self.workers();
        let all = workers.entry(queue.to_owned()).or_default();
        all.retain(|worker| !worker.is_closed());
        all.push(sender);
        receiver
    }

    /// Reports that a message of this queue was cancelled while it was leased.
    pub(crate) fn tell(&self, queue: &str, id: &MessageId) {
        let mut workers = self.workers();
        if let Some(all) = workers.get_mut(queue) {
            all.retain(|worker| worker.send(id.clone()).is_ok());
            if all.is_empty() {
                workers.remove(queue);
            }
        }
    }

    fn workers(&self) -> MutexGuard<'_, Workers> {
        // Nothing panics while it is locked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_of_the_queue_are_told_until_they_end() {
        let cancels = Cancels::default();
        let id = MessageId::try_from("a").unwrap();
        let (mut first, mut second) = (cancels.listen("one"), cancels.listen("one"));
        let mut other = cancels.listen("other");
        cancels.tell("one", &id);
        assert_eq!(
            (first.try_recv().unwrap(), second.try_recv().unwrap()),
            (id.clone(), id.clone())
        );
        assert!(other.try_recv().is_err());
        drop(first);
        let third = cancels.listen("one");
        assert_eq!(cancels.workers()["one"].len(), 2);
        drop((second, third));
        cancels.tell("one", &id);
        assert_eq!(cancels.workers().len(), 1);
    }
}
