//! Which connections are served, and how many.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use delayline_web::ClientAddress;
use tokio::task::AbortHandle;

/// What counts as one client: an IPv4 address, or a network of 2^64 IPv6 addresses, of which one
/// machine can have all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Client(IpAddr);

impl Client {
    pub(super) fn of(address: IpAddr) -> Self {
        Self(ClientAddress(address).network())
    }
}

/// The connections that may make any request.
#[derive(Clone)]
pub(super) struct Slots {
    most: usize,
    held: Arc<Mutex<Held>>,
}

#[derive(Default)]
struct Held {
    by: HashMap<Client, usize>,
    total: usize,
}

impl Slots {
    pub(super) fn new(most: usize) -> Self {
        Self { most, held: Arc::default() }
    }

    /// Takes a slot. A client gets fewer than are free, so that some are left for other clients,
    /// however many connections one of them opens.
    pub(super) fn take(&self, client: Client) -> Option<Slot> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let own = held.by.get(&client).copied().unwrap_or_default();
        if own >= self.most.saturating_sub(held.total) {
            return None;
        }
        held.by.insert(client, own + 1);
        held.total += 1;
        Some(Slot { client, slots: self.clone() })
    }
}

/// A place in [`Slots`], until this is dropped.
pub(super) struct Slot {
    client: Client,
    slots: Slots,
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut held = self.slots.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.total = held.total.saturating_sub(1);
        if let Some(own) = held.by.get_mut(&self.client) {
            *own = own.saturating_sub(1);
            if *own == 0 {
                held.by.remove(&self.client);
            }
        }
    }
}

/// The connections beyond the slots, which may only ask for health and metrics.
pub(super) struct Reserve {
    most: usize,
    open: VecDeque<(Client, AbortHandle)>,
}

impl Reserve {
    pub(super) const fn new(most: usize) -> Self {
        Self { most, open: VecDeque::new() }
    }

    /// Adds a connection. If there are too many, ends the oldest one of the client that has most.
    pub(super) fn add(&mut self, client: Client, task: AbortHandle) {
        self.open.retain(|(_, task)| !task.is_finished());
        if self.open.len() >= self.most {
            let mut counts: HashMap<Client, usize> = HashMap::new();
            for (client, _) in &self.open {
                *counts.entry(*client).or_default() += 1;
            }
            let most = counts.values().copied().max();
            let oldest =
                self.open.iter().position(|(client, _)| counts.get(client) == most.as_ref());
            if let Some((_, task)) = oldest.and_then(|oldest| self.open.remove(oldest)) {
                task.abort();
            }
        }
        self.open.push_back((client, task));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(address: &str) -> Client {
        Client::of(address.parse().unwrap())
    }

    #[test]
    fn one_client_leaves_half_of_the_slots_to_others() {
        let slots = Slots::new(16);
        let take = |address: &str| {
            let taken = std::iter::from_fn(|| slots.take(client(address)));
            taken.take(99).collect::<Vec<_>>()
        };
        let first = take("192.0.2.1");
        let second = take("192.0.2.2");
        let third = take("192.0.2.3");
        assert_eq!((first.len(), second.len(), third.len()), (8, 4, 2));
        drop(first);
        assert_eq!(take("192.0.2.4").len(), 5);
        drop((second, third));
        assert_eq!(take("192.0.2.1").len(), 8);
        assert!(slots.held.lock().unwrap().by.is_empty());
    }

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        assert_eq!(client("2001:db8::1"), client("2001:db8::ffff:2"));
        assert_ne!(client("2001:db8::1"), client("2001:db8:0:1::1"));
        assert_eq!(client("::ffff:192.0.2.1"), client("192.0.2.1"));
        assert_ne!(client("192.0.2.2"), client("192.0.2.1"));
    }

    #[tokio::test]
    async fn the_reserve_ends_the_oldest_of_the_client_that_has_most() {
        let mut reserve = Reserve::new(3);
        let tasks: Vec<_> = ["192.0.2.1", "192.0.2.2", "192.0.2.2", "192.0.2.3"]
            .into_iter()
            .map(|address| {
                let task = tokio::spawn(std::future::pending::<()>());
                reserve.add(client(address), task.abort_handle());
                task
            })
            .collect();
        let mut ended = Vec::new();
        for task in tasks {
            tokio::task::yield_now().await;
            ended.push(task.is_finished());
        }
        assert_eq!(ended, [false, true, false, false]);
    }
}
