//! How the cases of all suites get a transport, and become tests.

use std::future::Future;

use delayline_core::Error;
use delayline_redis_protocol::{ConnectOptions, Driver, DriverTransport, Transport};

/// Connects with the driver under test.
pub trait Connect {
    type Transport: Transport;

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

/// One test for each case of a suite that stands at the root of its program. The driver's transport
/// is named by its whole path.
#[allow(unused_macros, reason = "not every suite has its tests from here")]
macro_rules! each_case {
    ($suite:ident, $connect:ty, $($module:ident: [$($case:ident)*],)*) => {
        $(
            mod $module {
                $(
                    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                    async fn $case() {
                        crate::$suite::$module::$case::<$connect>().await;
                    }
                )*
            }
        )*
    };
}
#[allow(unused_imports, reason = "not every suite has its tests from here")]
pub(crate) use each_case;
