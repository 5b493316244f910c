//! Clusters and sentinels over fred.

#[path = "../../delayline-redis-protocol/tests/topology_cases/mod.rs"]
mod topology_cases;

use topology_cases::topology_cases;

topology_cases!(delayline_fred::FredTransport);
