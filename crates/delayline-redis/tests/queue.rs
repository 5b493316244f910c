//! Queues over redis-rs, on servers that are broken, full, hostile or not meant for them; and the cases
//! of the scripts, which run over this driver alone.

use delayline_driver_testkit::{queue_cases, script_cases};

queue_cases!(delayline_redis::RedisTransport);
script_cases!(delayline_redis::RedisTransport);
