//! Messages in columns.

use comfy_table::{CellAlignment, ColumnConstraint, Width, presets};
use delayline::message::{MessageInfo, MessageState};

use delayline_json::harmless_line;

/// A table that is printed piece by piece. A column never becomes narrower, so that the pieces fit
/// together as long as their cells do.
#[derive(Default)]
pub(crate) struct Table {
    widths: Vec<u16>,
    rows: Vec<[String; COLUMNS]>,
}

impl Table {
    /// Adds messages.
    pub(crate) fn add(&mut self, messages: &[MessageInfo]) {
        self.rows.extend(messages.iter().map(row));
    }

    /// Whether there is enough for a piece.
    pub(crate) fn is_full(&self) -> bool {
        self.rows.len() >= PIECE_ROWS
    }

    /// The rows added since the last piece, with the heads of the columns if it is the first.
    pub(crate) fn piece(&mut self) -> String {
        let mut table = comfy_table::Table::new();
        table.load_preset(presets::NOTHING);
        if self.widths.is_empty() {
            table.set_header(HEADS);
        }
        table.add_rows(self.rows.drain(..));
        for (number, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, 2));
            if NUMBERS.contains(&number) {
                column.set_cell_alignment(CellAlignment::Right);
            }
            if let Some(width) = self.widths.get(number) {
                column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(*width)));
            }
        }
        let grown = table.column_max_content_widths().into_iter().enumerate().map(|(n, width)| {
            // The constraint counts the padding.
            self.widths.get(n).copied().unwrap_or_default().max(width.saturating_add(2))
        });
        self.widths = grown.collect();
        table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
    }
}

/// Texts in columns, as wide as their widest cell.
pub(crate) fn columns(heads: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut table = comfy_table::Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(heads);
    table.add_rows(rows);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

fn row(info: &MessageInfo) -> [String; COLUMNS] {
    [
        harmless_line(&info.id.to_string()),
        info.state.status().name().to_owned(),
        info.due.to_string(),
        info.priority.name().to_owned(),
        format!("{}/{}", info.failures, info.max_failures),
        format!("{}/{}", info.crashes, info.max_crashes),
        info.payload_bytes.to_string(),
        note(info),
    ]
}

/// Details of the state, the progress and the group of the message, and the latest error.
fn note(info: &MessageInfo) -> String {
    let mut parts = Vec::new();
    match info.state {
        MessageState::Leased { deadline, cancel_requested } => {
            parts.push(format!("until {deadline}"));
            if cancel_requested {
                parts.push("cancel requested".to_owned());
            }
        }
        MessageState::Dead { reason, since } => {
            let reason = reason.name().replace('_', "-");
            parts.push(format!("{reason} since {since}"));
        }
        _ => {}
    }
    parts.extend(info.progress.as_ref().map(|progress| harmless_line(&progress.to_string())));
    if let Some(group) = &info.group {
        parts.push(format!("group {}", harmless_line(&group.to_string())));
    }
    if let Some(error) = &info.last_error {
        let error = error.trim();
        let shown: String = error.chars().take(ERROR_CHARS).collect();
        let dots = if shown.len() < error.len() { "..." } else { "" };
        parts.push(harmless_line(&shown) + dots);
    }
    parts.join("; ")
}

const PIECE_ROWS: usize = 1_000;
const COLUMNS: usize = 8;
const HEADS: [&str; COLUMNS] =
    ["ID", "STATE", "DUE", "PRIORITY", "FAILURES", "CRASHES", "BYTES", "NOTE"];
const NUMBERS: std::ops::RangeInclusive<usize> = 4..=6;
/// `get` shows the whole of it.
const ERROR_CHARS: usize = 60;
