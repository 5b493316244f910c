//! Sequences that a backend once got wrong; every backend runs them.

/// Name and text of each. A new file in `regressions/` gets a line here.
pub(crate) const ALL: &[(&str, &str)] = &[];
