//! Connections that end anywhere in a request or reply.

use delayline_driver_testkit::wire_cases;

wire_cases!(delayline_redis::RedisTransport);
