//! Clusters and sentinels over redis-rs.

use delayline_driver_testkit::topology_cases;

topology_cases!(delayline_redis::RedisTransport);
