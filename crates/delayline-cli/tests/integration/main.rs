//! The command, run as a shell runs it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    unreachable_pub,
    reason = "test code"
)]

mod changes;
mod check;
mod compose;
mod dead;
mod delete_queue;
mod demo;
mod deployment;
mod doctor;
mod doctor_alerts;
mod file;
mod import;
mod import_live;
mod killed_workers;
mod list_and_get;
mod on_a_terminal;
mod post;
mod pull;
mod refusals;
mod relay;
mod schedule;
mod send;
mod serve;
mod sqs;
mod support;
mod top;
mod topology;
mod unknown_queues;
mod upgrade;
mod windows;
mod work;
mod work_saves;
mod workers;
