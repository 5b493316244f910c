//! Connections that end anywhere in a request or reply.

#[path = "../../delayline-redis-protocol/tests/wire_cases/mod.rs"]
mod wire_cases;

use delayline_core::Error;
use delayline_fred::FredTransport;
use delayline_redis_protocol::ConnectOptions;
use wire_cases::{Connect, wire_cases};

/// Connects with the driver under test.
struct Fred;

impl Connect for Fred {
    type Transport = FredTransport;

    async fn connect(options: &ConnectOptions) -> Result<FredTransport, Error> {
        FredTransport::connect(options).await
    }
}

wire_cases!(Fred);
