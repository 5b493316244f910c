//! What a person does with the dashboard, in Chromium.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

mod dead;
mod directory;
mod hostile;
mod limits;
mod live;
mod looks;
mod messages;
mod schedules;
mod search;
mod support;
mod workers;
