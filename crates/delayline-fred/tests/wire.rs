//! Connections that end anywhere in a request or reply.

#[path = "../../delayline-redis-protocol/tests/wire_cases/mod.rs"]
mod wire_cases;

use wire_cases::wire_cases;

wire_cases!(delayline_fred::FredTransport);
