//! The conformance suite on queues of three shards: in memory, and on a server with both drivers.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use delayline::{Connect, Connection, RedisClient};
use delayline_core::{Error, ErrorKind, QueueBackend};
use delayline_test_server::Server;
use delayline_testkit::{Fixture, async_trait};
use tokio::runtime::Runtime;

struct Shards {
    way: &'static str,
    connection: Connection,
    next: AtomicU64,
}

#[async_trait]
impl Fixture for Shards {
    async fn fresh(&self) -> Result<Arc<dyn QueueBackend>, Error> {
        let name = format!("{}-{}", self.way, self.next.fetch_add(1, Ordering::Relaxed));
        Ok(self.connection.backend(&name).shards(3).await?)
    }

    fn wants(&self, trial: &str) -> bool {
        !DIFFERENT.iter().any(|different| trial.starts_with(different))
    }
}

/// The trials that several shards do not pass. A test of this crate runs them on one shard.
const DIFFERENT: &[&str] = &[
    // They compare with one state, whose order, sequence numbers and revisions several do not have.
    "differential::",
    "faults::dropped_operations_are_whole",
    // A batch is several operations, one for each shard.
    "cases::drops::a_dropped_batch_is_executed_whole_or_not_at_all",
    "histories::",
    "regressions::",
    // Nothing is stored in memory, and a server is not reopened here.
    "reopen::",
    // Messages in different shards are delivered by priority and due instant within a claim only.
    "cases::order::",
    "cases::clock::the_servers_clock_is_never_early",
    "cases::claims::a_repeated_claim_answers_the_same_leases",
    "cases::claims::a_repeated_claim_takes_nothing_new",
    "cases::claims::the_memory_of_claims_is_bounded",
    "cases::claims::the_next_claim_of_a_consumer_takes_new_messages",
    "cases::delivery::a_claim_takes_at_most_what_it_asks_for",
    "cases::forms::",
    "cases::groups::",
    "cases::hostile::ids_of_any_bytes_are_told_apart",
    "cases::hostile::payloads_of_any_bytes_are_kept",
    "cases::leases::only_the_current_lease_can_be_extended",
    "cases::look::",
    "cases::memory::a_claim_is_forgotten_at_its_instant",
    "cases::settle::a_settlement_until_a_past_instant_is_due_now",
    "cases::throttle::a_batch_mixes_throttled_and_other_messages",
    "cases::totals::every_end_of_a_lease_is_counted",
    "cases::update::a_follower_takes_over_after_any_other_settlement",
    "cases::update::items_of_a_batch_mix",
    // A claim shares its room among the shards, and may return fewer messages, with `more`.
    "cases::group_limits::",
    // Limits of the queue are divided.
    "cases::queue_limits::",
    "cases::hints::what_no_limit_holds_back_any_more_rings",
    // Each shard has the bounds of an operation, and the memory of finished messages, for itself.
    "cases::dead::a_claim_gets_past_many_that_have_expired",
    "cases::leases::one_claim_takes_back_a_bounded_number_of_leases",
    "cases::limits::",
    "cases::memory::as_many_ids_are_remembered_and_throttled_as_may_be",
    "cases::memory::each_way_to_finish_makes_room",
    "cases::memory::what_finishes_later_begins_a_generation",
    "cases::memory::what_is_forgotten_does_not_come_back_with_the_clock",
    "cases::results::results_beyond_the_limit_are_not_kept",
    "cases::saves::a_claim_counts_what_it_returns_of_saves",
    "cases::saves::the_largest_saves_are_kept",
    "cases::totals::a_large_batch_is_counted_whole",
    "cases::update::a_batch_of_followers_takes_over",
    // Messages for another shard are sent before the lease ends.
    "cases::hand_off::",
    // Each shard drops its own past when its clock steps.
    "cases::history::",
    // Relays are refused.
    "cases::relay::",
];

fn main() -> ExitCode {
    let server = Server::start();
    let runtime = match Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return give_up(&error.to_string()),
    };
    let url = server.url();
    let ways = [
        ("memory", Connect::new("memory:")),
        ("redis", Connect::new(&url).map(|it| it.client(RedisClient::Redis))),
        ("fred", Connect::new(&url).map(|it| it.client(RedisClient::Fred))),
    ];
    let mut fixtures = Vec::new();
    for (way, connect) in ways {
        let connected = runtime.block_on(async { connect?.connect().await });
        match connected {
            Ok(connection) => {
                fixtures.push((way, Shards { way, connection, next: AtomicU64::new(0) }));
            }
            Err(error) if matches!(error.kind(), ErrorKind::Unsupported(_)) => {}
            Err(error) => return give_up(&error.to_string()),
        }
    }
    delayline_testkit::main_of_ways(fixtures)
}

fn give_up(reason: &str) -> ExitCode {
    eprintln!("the suite cannot run: {reason}");
    ExitCode::FAILURE
}
