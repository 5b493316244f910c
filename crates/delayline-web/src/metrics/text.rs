//! The text format of Prometheus.

use std::fmt::Write as _;

/// Appends what precedes the values of a metric.
pub(super) fn head(out: &mut String, metric: &str, kind: &str, help: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "# HELP {metric} {help}\n# TYPE {metric} {kind}");
}
