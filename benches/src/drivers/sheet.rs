//! Rows of words for the page.

use std::fmt::Write as _;

/// Rows of words under one heading.
pub(super) struct Sheet {
    pub(super) title: &'static str,
    pub(super) note: &'static str,
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
}

impl Sheet {
    pub(super) fn to_markdown(&self) -> String {
        let rule = "|---".repeat(self.columns.len()) + "|\n";
        let mut text = format!("## {}\n\n{}\n\n", self.title, self.note);
        // Writing to a text cannot fail.
        let _ = writeln!(text, "| {} |\n{}", self.columns.join(" | "), rule.trim_end());
        for row in &self.rows {
            let _ = writeln!(text, "| {} |", row.join(" | "));
        }
        text + "\n"
    }
}
