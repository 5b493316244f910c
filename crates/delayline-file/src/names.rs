//! The names of the files of a directory.

/// A segment of the log.
pub(crate) fn segment(number: u64) -> String {
    format!("log-{number:016}")
}

/// A snapshot of all that is in the segments before the one of this number.
pub(crate) fn snapshot(number: u64) -> String {
    format!("snapshot-{number:016}")
}

/// A snapshot that is being written.
pub(crate) fn temporary(number: u64) -> String {
    format!("{}{TEMPORARY}", snapshot(number))
}

/// An empty file that says that the segment of this number was begun after the queues had been
/// closed: without it, that segment could go missing unnoticed.
pub(crate) fn begun(number: u64) -> String {
    format!("begun-{number:016}")
}

/// What a name means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    Segment(u64),
    Snapshot(u64),
    Begun(u64),
    Temporary,
}

/// Returns what a name means, if it is that of one of our files.
pub(crate) fn parse(name: &str) -> Option<Named> {
    let number = |digits: &str| {
        let is_number = digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_digit());
        if is_number { digits.parse().ok() } else { None }
    };
    if let Some(digits) = name.strip_prefix("log-") {
        return number(digits).map(Named::Segment);
    }
    if let Some(digits) = name.strip_prefix("begun-") {
        return number(digits).map(Named::Begun);
    }
    let digits = name.strip_prefix("snapshot-")?;
    match digits.strip_suffix(TEMPORARY) {
        Some(digits) => number(digits).map(|_| Named::Temporary),
        None => number(digits).map(Named::Snapshot),
    }
}

/// Whether a name is that of one of our files.
pub(crate) fn is_ours(name: &str) -> bool {
    parse(name).is_some()
}

const TEMPORARY: &str = ".new";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_as_they_are_made() {
        assert_eq!(parse(&segment(7)), Some(Named::Segment(7)));
        assert_eq!(parse(&snapshot(u64::from(u32::MAX))), Some(Named::Snapshot(4_294_967_295)));
        assert_eq!(parse(&temporary(7)), Some(Named::Temporary));
        assert_eq!(parse(&begun(7)), Some(Named::Begun(7)));
        for other in ["log-7", "log-000000000000000x", "snapshot-", "notes", "log-.new"] {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
