//! What the benchmarks share: the operations of one round, and what they say of a server.

mod ops;
mod server;

pub use ops::{PAYLOAD_BYTES, ack, claim, deliveries, enqueue};
pub use server::{cpu_time, settings};
