//! Clusters and sentinels over fred.

#[path = "../../delayline-redis-protocol/tests/topology_cases/mod.rs"]
mod topology_cases;

use delayline_core::Error;
use delayline_fred::FredTransport;
use delayline_redis_protocol::ConnectOptions;
use topology_cases::{Connect, topology_cases};

/// Connects with fred.
struct Fred;

impl Connect for Fred {
    type Transport = FredTransport;

    async fn connect(options: &ConnectOptions) -> Result<FredTransport, Error> {
        FredTransport::connect(options).await
    }
}

topology_cases!(crate::Fred);
