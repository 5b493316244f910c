//! What every Redis driver of Delayline must do, as tests on real servers. A test program of the
//! driver's crate has them by one line, which names the driver's transport:
//!
//! ```
//! // tests/integration.rs
//! delayline_driver_testkit::driver_cases!(my_driver::MyTransport);
//! # fn main() {}
//! ```
//!
//! Here `MyTransport` is a [`DriverTransport`](delayline_redis_protocol::DriverTransport) over the
//! driver, or any other type that implements [`Connect`].
//!
//! - [`driver_cases!`] has all of the following, each in a module such as `transport`:
//!   - [`transport_cases!`]: connecting, calls and waits, with servers that fail and a proxy that
//!     loses requests and replies.
//!   - [`wire_cases!`]: every operation, cut at every byte.
//!   - [`topology_cases!`]: clusters and sentinels.
//!   - [`durability_cases!`]: confirmed calls.
//!   - [`queue_cases!`]: queues on servers that are full, of another version, or take rights away.
//! - [`conformance()`] and [`conformance_of_ways`]: the suite of [`delayline_testkit`], each in a
//!   program with `harness = false`.
//!
//! The README has the whole recipe. Tests start private servers by [`delayline_test_server`], which
//! says where it looks for the program, and fail without one.
//!
//! Minor releases may add cases, so a driver that passed before may rightly fail.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a case fails by a panic, as any test"
)]

mod conformance;
mod connect;
#[doc(hidden)]
pub mod durability;
#[doc(hidden)]
pub mod next_layout;
#[doc(hidden)]
pub mod queue;
#[doc(hidden)]
pub mod topology;
#[doc(hidden)]
pub mod transport;
#[doc(hidden)]
pub mod wire;

pub use self::conformance::{Place, conformance, conformance_of_ways};
pub use self::connect::Connect;
#[doc(hidden)]
pub use self::connect::run;
pub use self::transport::{heals, increment};

/// All groups of tests of a driver, but not the conformance suite. Each is in a module of its name.
#[macro_export]
macro_rules! driver_cases {
    (@each $connect:ty; $($group:ident: $cases:ident;)*) => {
        $(
            mod $group {
                #[allow(unused_imports, reason = "a driver may be named by its whole path")]
                use super::*;

                $crate::$cases!($connect);
            }
        )*
    };
    ($connect:ty) => {
        $crate::driver_cases! { @each $connect;
            durability: durability_cases;
            queue: queue_cases;
            topology: topology_cases;
            transport: transport_cases;
            wire: wire_cases;
        }
    };
}
