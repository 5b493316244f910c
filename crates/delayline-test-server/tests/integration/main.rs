//! Tests the behaviour of servers, networks and proxies that other tests rely on.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    unreachable_pub,
    reason = "test code"
)]

mod network;
mod orphans;
mod proxy;
mod server;
