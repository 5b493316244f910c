//! Clients that say whatever comes to mind about six messages.

use std::sync::Arc;
use std::time::Duration;

use delayline_core::{At, ErrorClass, QueueBackend};
use delayline_testkit::workload::Improviser;
use proptest::test_runner::{RngAlgorithm, TestRng};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::Queue;

/// Clients of both drivers, until they are stopped.
pub(crate) struct Improvised {
    clients: JoinSet<()>,
    stop: watch::Sender<bool>,
}

impl Improvised {
    pub(crate) fn start(queue: &Queue, chance: &mut fastrand::Rng) -> Self {
        let mut seed = [0; 32];
        chance.fill(&mut seed);
        let improviser = Improviser::new(TestRng::from_seed(RngAlgorithm::ChaCha, &seed));
        let goes_by_server = queue.log.setting().goes_by_server();
        let improviser =
            Arc::new(if goes_by_server { improviser } else { improviser.with_rates() });
        let (mut clients, stop) = (JoinSet::new(), watch::Sender::new(false));
        for _ in 0..CLIENTS_A_DRIVER {
            for client in &queue.clients {
                let (client, improviser) = (Arc::clone(client), Arc::clone(&improviser));
                clients.spawn(talk(client, improviser, chance.fork(), stop.subscribe()));
            }
        }
        Self { clients, stop }
    }

    pub(crate) async fn stop(self) {
        self.stop.send_replace(true);
        self.clients.join_all().await;
    }
}

async fn talk(
    queue: Arc<dyn QueueBackend>,
    improviser: Arc<Improviser>,
    mut chance: fastrand::Rng,
    stop: watch::Receiver<bool>,
) {
    while !*stop.borrow() {
        let op = improviser.next();
        loop {
            match queue.apply(At::Server, &op).await {
                Ok(applied) => improviser.observe(&op, &applied),
                Err(error) if error.class() == ErrorClass::Rejected => {}
                // Some callers never retry, so that the effect of the call stays unknown.
                Err(_) if chance.u8(..3) == 0 || *stop.borrow() => {}
                Err(_) => {
                    tokio::time::sleep(Duration::from_millis(chance.u64(2..20))).await;
                    continue;
                }
            }
            break;
        }
        tokio::time::sleep(Duration::from_millis(chance.u64(..MOST_IDLE_MS))).await;
    }
}

const CLIENTS_A_DRIVER: usize = 3;
const MOST_IDLE_MS: u64 = 3;
