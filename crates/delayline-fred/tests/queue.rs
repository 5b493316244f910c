//! Queues over fred, on servers that are broken, full, hostile or not meant for them.

#[path = "../../delayline-redis-protocol/tests/queue_cases/mod.rs"]
mod queue_cases;

use queue_cases::queue_cases;

queue_cases!(delayline_fred::FredTransport);
