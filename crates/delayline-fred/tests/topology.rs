//! Clusters and sentinels over fred.

use delayline_driver_testkit::topology_cases;

topology_cases!(delayline_fred::FredTransport);
