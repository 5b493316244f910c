//! The API for programs, on backends that fail on demand and on real servers.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    unreachable_pub,
    reason = "test code"
)]

mod after;
mod after_fates;
mod batch;
mod blocking;
#[cfg(any(feature = "redis", feature = "fred"))]
mod clock;
#[cfg(feature = "json")]
mod codecs;
mod connection;
mod dead_letters;
#[cfg(all(feature = "testing", feature = "json"))]
mod drafts;
mod durability;
mod events;
mod explain;
#[cfg(feature = "file")]
mod file;
mod hand_off;
#[cfg(all(feature = "testing", feature = "json"))]
mod handlers;
#[cfg(all(feature = "testing", feature = "json"))]
mod jobs;
mod leases;
mod limits;
mod merging;
#[cfg(feature = "metrics")]
mod metrics;
mod queue;
#[cfg(feature = "json")]
mod ready_client;
mod relay;
mod results;
#[cfg(feature = "json")]
mod saves;
#[cfg(all(feature = "testing", feature = "schedules"))]
mod schedules;
#[cfg(all(feature = "testing", feature = "schedules"))]
mod schedules_trouble;
#[cfg(any(feature = "redis", feature = "fred"))]
mod servers;
#[cfg(feature = "tower")]
mod service;
#[cfg(feature = "json")]
mod shards;
#[cfg(all(unix, feature = "signal"))]
mod shutdown;
mod support;
#[cfg(feature = "testing")]
mod testing;
#[cfg(feature = "json")]
mod transfer;
mod updates;
mod worker;
mod worker_limits;
mod worker_list;
mod workers;
