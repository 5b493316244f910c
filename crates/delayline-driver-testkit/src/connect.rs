//! How cases get a transport, and become tests.

use std::future::Future;

use delayline_core::Error;
use delayline_redis_protocol::{ConnectOptions, Driver, DriverTransport, Transport};
use tokio::runtime::Builder;

/// Connects with the driver under test. Every [`DriverTransport`] does.
///
/// Implement it for a type of your own if your transport is not a [`DriverTransport`], or is
/// connected in another way.
pub trait Connect: 'static {
    /// What the cases use.
    type Transport: Transport;

    /// Connects to the servers of `options`, with its login, protocol, limits and certificate
    /// authority.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up and closes a connection that is half open.
    ///
    /// # Errors
    ///
    /// What [`DriverTransport::connect`] fails with: the cases check its kind.
    fn connect(
        options: &ConnectOptions,
    ) -> impl Future<Output = Result<Self::Transport, Error>> + Send;
}

impl<D: Driver> Connect for DriverTransport<D> {
    type Transport = Self;

    async fn connect(options: &ConnectOptions) -> Result<Self, Error> {
        Self::connect(options).await
    }
}

/// Runs a case to its end, on a separate runtime with two threads, so that no case depends on all
/// tasks taking turns.
#[doc(hidden)]
pub fn run(case: impl Future<Output = ()>) {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(case);
}

/// One test for each case of a suite. A driver may be named as it is at the root of the program.
#[doc(hidden)]
#[macro_export]
macro_rules! each_case {
    ($suite:ident, $connect:ty, $($module:ident: [$($case:ident)*],)*) => {
        $(
            mod $module {
                #[allow(unused_imports, reason = "a driver may be named by its whole path")]
                use super::*;

                $(
                    #[test]
                    fn $case() {
                        $crate::run($crate::$suite::$module::$case::<$connect>());
                    }
                )*
            }
        )*
    };
}
