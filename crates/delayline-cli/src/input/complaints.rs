//! Lines that were not taken, on stderr.

use std::collections::BTreeMap;

use delayline::admin::folded_error;
use delayline_json::harmless_line;
use indicatif::ProgressBar;

/// Reports the first lines of each reason, and counts the others.
pub(crate) struct Complaints {
    reasons: BTreeMap<String, Reason>,
    /// It makes room for a report.
    bar: ProgressBar,
}

struct Reason {
    /// The reason as reported for the first line.
    first: String,
    /// The number of the first line.
    line: u64,
    lines: u64,
}

impl Complaints {
    /// Nothing was reported yet.
    pub(crate) const fn beside(bar: ProgressBar) -> Self {
        Self { reasons: BTreeMap::new(), bar }
    }

    /// Reports a line. Reasons that differ only in ids and numbers are one.
    pub(crate) fn add(&mut self, line: u64, why: &str) {
        self.add_of(line, &folded_error(why), why);
    }

    /// Reports a line whose reason is known under a name.
    pub(crate) fn add_of(&mut self, line: u64, name: &str, why: &str) {
        let is_known = self.reasons.contains_key(name);
        // The reasons of hostile input may all differ.
        let name = if is_known || self.reasons.len() < MOST_REASONS { name } else { OTHERS };
        let new = || Reason { first: why.to_owned(), line, lines: 0 };
        let reason = self.reasons.entry(name.to_owned()).or_insert_with(new);
        reason.lines += 1;
        if reason.lines > 1 && reason.first == why && reason.lines <= SHOWN {
            self.bar.suspend(|| eprintln!("line {line}: the same as line {}", reason.line));
        } else if reason.lines <= SHOWN {
            self.bar.suspend(|| eprintln!("line {line}: {}", harmless_line(why)));
        }
    }

    /// Reports how many lines were only counted.
    pub(crate) fn finish(self) {
        let mut reasons: Vec<_> = self.reasons.into_iter().collect();
        reasons.sort_unstable_by_key(|(_, reason)| reason.line);
        for (name, Reason { line, lines, .. }) in reasons {
            match lines.saturating_sub(SHOWN) {
                0 => {}
                more if name == OTHERS => eprintln!("and {more} more for other reasons"),
                more => eprintln!("and {more} more like line {line}"),
            }
        }
    }
}

/// Lines shown for each reason.
const SHOWN: u64 = 10;
const MOST_REASONS: usize = 20;
/// The name of all further reasons. No reason is empty.
const OTHERS: &str = "";
