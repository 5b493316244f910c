//! Claims of consumers over HTTP: who waits for messages, and which leases were answered.
//!
//! All polls that wait on a queue share one task ([`polls`]). It waits for hints, claims for one
//! poll after the other, and ends with the last poll. Leases that no client can receive are
//! released ([`hold`]).

pub(crate) mod hold;
pub(crate) mod polls;
pub(crate) mod token;
