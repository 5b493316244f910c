//! Queues over fred, on servers that are broken, full, hostile or not meant for them.

#[path = "../../delayline-redis-protocol/tests/queue_cases/mod.rs"]
mod queue_cases;

use delayline_core::Error;
use delayline_fred::FredTransport;
use delayline_redis_protocol::ConnectOptions;
use queue_cases::{Connect, queue_cases};

/// Connects with fred.
struct Fred;

impl Connect for Fred {
    type Transport = FredTransport;

    async fn connect(options: &ConnectOptions) -> Result<FredTransport, Error> {
        FredTransport::connect(options).await
    }
}

queue_cases!(Fred);
