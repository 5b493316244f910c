//! Hand-written cases: what the guarantees mean, with every expected result written by hand.
//!
//! They are checked without the model, so that the model is tested too. Each runs on its own queue,
//! which is then audited and drained; every message must be accounted for (G1).

mod attempts;
mod cancel;
mod claims;
mod clock;
mod dead;
mod dedup;
mod delivery;
mod drops;
mod forms;
mod group_limits;
mod groups;
mod hand_off;
mod hints;
mod history;
mod hostile;
mod leases;
mod limits;
mod look;
mod memory;
mod order;
mod pause;
mod queue;
mod queue_limits;
mod relay;
mod results;
mod saves;
mod settle;
mod throttle;
mod totals;
mod update;
mod wakeup;

use std::pin::Pin;
use std::sync::Arc;

use self::queue::Queue;
use crate::clients::Clients;

/// A running case.
type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

/// One hand-written case.
pub(crate) struct Case {
    /// Topic, name and the guarantees it covers.
    pub(crate) name: &'static str,
    /// Whether it needs a backend that gives hints.
    pub(crate) needs_hints: bool,
    run: fn(Arc<Queue>) -> Running,
}

impl Case {
    /// Runs the case on an empty queue. Panics if it fails.
    pub(crate) async fn run(&self, clients: Clients) {
        let queue = Arc::new(Queue::new(clients));
        (self.run)(Arc::clone(&queue)).await;
        queue.drain().await;
    }
}

/// Returns every case.
pub(crate) fn all() -> Vec<Case> {
    let topics: [fn() -> Vec<Case>; 30] = [
        delivery::cases,
        forms::cases,
        order::cases,
        leases::cases,
        settle::cases,
        attempts::cases,
        hand_off::cases,
        results::cases,
        saves::cases,
        cancel::cases,
        dead::cases,
        dedup::cases,
        throttle::cases,
        update::cases,
        claims::cases,
        pause::cases,
        queue_limits::cases,
        groups::cases,
        group_limits::cases,
        relay::cases,
        clock::cases,
        drops::cases,
        memory::cases,
        limits::cases,
        hostile::cases,
        look::cases,
        totals::cases,
        history::cases,
        wakeup::cases,
        hints::cases,
    ];
    topics.into_iter().flat_map(|topic| topic()).collect()
}

/// The cases of a topic: the names of functions that take a queue, each with its guarantees.
macro_rules! cases {
    ($topic:literal, $($name:ident: $guarantees:literal,)*) => {
        $crate::cases::cases!(@hints false, $topic, $($name: $guarantees,)*);
    };
    (@hints $hints:literal, $topic:literal, $($name:ident: $guarantees:literal,)*) => {
        pub(super) fn cases() -> Vec<$crate::cases::Case> {
            vec![$($crate::cases::Case {
                name: concat!($topic, "::", stringify!($name), " (", $guarantees, ")"),
                needs_hints: $hints,
                run: |queue| Box::pin(async move { $name(&queue).await }),
            }),*]
        }
    };
}
use cases;
