//! Shared by the benchmarks: the operations of one round, programs that use a queue, and
//! descriptions of a server.

mod operations;
mod ops;
pub mod plot;
mod server;
mod traffic;

pub use operations::{Measured, apply};
pub use ops::{PAYLOAD_BYTES, ack, claim, deliveries, enqueue};
pub use server::{Requests, cpu_time, settings};
pub use traffic::{payload, send_in_bulk, send_singly, work};
