//! The Redis clients of this build.

use std::marker::PhantomData;
use std::sync::Arc;

use async_trait::async_trait;
use delayline_redis_protocol::{ConnectOptions, DriverTransport, Survey, Transport};

use crate::Error;

/// The Redis client that carries the calls. Both behave the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RedisClient {
    /// The `redis` crate. Needs the feature `redis`.
    Redis,
    /// The `fred` crate. Needs the feature `fred`.
    Fred,
}

impl RedisClient {
    /// Returns what connects with this client.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if it is not part of this build.
    pub(crate) fn dialer(self) -> Result<&'static dyn Dial, Error> {
        match self {
            #[cfg(feature = "redis")]
            Self::Redis => Ok(&With::<delayline_redis::RedisDriver>(PhantomData)),
            #[cfg(feature = "fred")]
            Self::Fred => Ok(&With::<delayline_fred::FredDriver>(PhantomData)),
            #[cfg(not(all(feature = "redis", feature = "fred")))]
            _ => Err(Error::unsupported("this driver (the features `redis` and `fred`)")),
        }
    }
}

/// The `redis` crate if it is part of the build, else `fred`.
impl Default for RedisClient {
    fn default() -> Self {
        if cfg!(feature = "fred") && !cfg!(feature = "redis") { Self::Fred } else { Self::Redis }
    }
}

/// Reaches servers by their addresses.
#[async_trait]
pub(crate) trait Dial: Sync {
    async fn connect(&self, options: &ConnectOptions) -> Result<Arc<dyn Transport>, Error>;

    async fn survey(&self, options: &ConnectOptions) -> Result<Survey, Error>;
}

#[cfg_attr(not(any(feature = "redis", feature = "fred")), expect(dead_code, reason = "no driver"))]
struct With<D>(PhantomData<fn() -> D>);

#[async_trait]
impl<D: delayline_redis_protocol::Driver> Dial for With<D> {
    async fn connect(&self, options: &ConnectOptions) -> Result<Arc<dyn Transport>, Error> {
        Ok(Arc::new(DriverTransport::<D>::connect(options).await?))
    }

    async fn survey(&self, options: &ConnectOptions) -> Result<Survey, Error> {
        Ok(DriverTransport::<D>::survey(options).await?)
    }
}
