//! Sequences for every backend: what one of them once got wrong, or might.

/// Name and text of each. A new file in `regressions/` needs a line here.
pub(crate) const ALL: &[(&str, &str)] = &[
    ("every_operation", EVERY_OPERATION),
    (
        "a_relay_ends_a_lease_in_order",
        include_str!("../regressions/a_relay_ends_a_lease_in_order.trace"),
    ),
    ("memory_of_what_has_been", include_str!("../regressions/memory_of_what_has_been.trace")),
    ("what_is_stored", include_str!("../regressions/what_is_stored.trace")),
    ("what_is_stored_of_groups", include_str!("../regressions/what_is_stored_of_groups.trace")),
];

/// All operations.
pub(crate) const EVERY_OPERATION: &str = include_str!("../regressions/every_operation.trace");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_listed() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/regressions");
        for file in std::fs::read_dir(directory).unwrap() {
            let path = file.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap();
            assert!(ALL.iter().any(|(listed, _)| *listed == name), "{name} is not in the list");
        }
    }
}
