//! Queues over redis-rs, on servers that are broken, full, hostile or not meant for them.

use delayline_driver_testkit::queue_cases;

queue_cases!(delayline_redis::RedisTransport);
