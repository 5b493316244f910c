//! The router, asked as a browser or a program would, without a network.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    unreachable_pub,
    reason = "test code"
)]

mod access;
mod actions;
mod after;
mod api;
mod audit;
mod bodies;
mod compose;
mod directory;
mod groups;
mod hostile;
mod jobs;
mod limits;
mod links;
mod live;
mod metrics;
mod pages;
mod parameters;
mod promql;
mod pull;
mod pull_described;
mod pull_failover;
mod pull_ledger;
mod pull_many;
mod pull_polls;
mod pull_saves;
mod redis;
mod scenarios;
mod schedules;
mod search;
mod server;
mod support;
mod times;
mod trouble;
mod workers;
