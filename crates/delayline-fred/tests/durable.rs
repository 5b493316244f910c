//! Confirmed calls over fred.

use delayline_driver_testkit::durability_cases;

durability_cases!(delayline_fred::FredTransport);
