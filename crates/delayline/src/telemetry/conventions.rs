//! Values of OpenTelemetry's conventions, in spans and metrics alike.

use delayline_core::Outcome;

/// The `messaging.system`.
pub(super) const SYSTEM: &str = "delayline";

/// The `error.type` of a handler that failed.
pub(super) const fn failure(outcome: &Outcome) -> Option<&'static str> {
    match outcome {
        Outcome::Retry { .. } => Some("retry"),
        Outcome::Undecodable { .. } => Some("undecodable"),
        Outcome::Reject { .. } => Some("reject"),
        _ => None,
    }
}
