//! The scripts over a plain driver, and the transport over it as every driver is tested.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a case fails by a panic, as any test"
)]

mod cases;
mod plain;

use self::plain::PlainTransport;

cases::script_cases!(tests PlainTransport);
#[cfg(feature = "tls")]
delayline_driver_testkit::transport_cases!(PlainTransport);
