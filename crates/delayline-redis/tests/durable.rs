//! Confirmed calls over redis-rs.

use delayline_driver_testkit::durability_cases;

durability_cases!(delayline_redis::RedisTransport);
