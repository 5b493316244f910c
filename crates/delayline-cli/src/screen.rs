//! Draws a table on the terminal, over the previous one.

use std::ops::ControlFlow;

use console::{Term, measure_text_width};

use crate::failure::Failure;
use crate::print::{aside, write_on};

/// The terminal of stdout, and the size of the latest table.
#[derive(Clone, Copy, Default)]
pub(crate) struct Screen {
    /// Rows of the terminal that the table takes, which wraps lines that are too long.
    drawn: usize,
    /// Rows and columns of the terminal when the table was drawn.
    size: (u16, u16),
}

impl Screen {
    /// Returns how many of the lines fit, from the first. If some do not, there is room for another
    /// short line.
    pub(crate) fn fitting(size: (u16, u16), lines: &[&str], has_more: bool) -> usize {
        // The cursor is below the last line.
        let room = usize::from(size.0).saturating_sub(1);
        let within = |room: usize| {
            let mut rows = 0;
            let fits = |line: &&&str| {
                rows += rows_of(line, size.1);
                rows <= room
            };
            lines.iter().take_while(fits).count()
        };
        match within(room.saturating_sub(usize::from(has_more))) {
            all if all == lines.len() => all,
            _ => within(room.saturating_sub(1)),
        }
    }

    /// The rows and columns of the terminal.
    pub(crate) fn size() -> (u16, u16) {
        Term::stdout().size()
    }

    /// Writes a text to stdout: over the previous one, if a size of the terminal is given. Returns
    /// `Break` if stdout is closed. After a drop, the text is still written if stdout is read.
    pub(crate) async fn draw(
        mut self,
        text: String,
        size: Option<(u16, u16)>,
    ) -> Result<(Self, ControlFlow<()>), Failure> {
        aside(move || {
            if let Some(size) = size {
                self.clear_for(&text, size);
            }
            Ok((self, write_on(&text)?))
        })
        .await
    }

    /// Clears the previous table, so that this text can be written.
    fn clear_for(&mut self, text: &str, size: (u16, u16)) {
        let term = Term::stdout();
        // A terminal that cannot clear lines shows one table below the other.
        let _ = match self.size {
            same if same == size => term.clear_last_lines(self.drawn),
            (0, 0) => Ok(()),
            // The terminal may have wrapped the lines differently.
            _ => term.clear_screen(),
        };
        self.drawn = text.lines().map(|line| rows_of(line, size.1)).sum();
        self.size = size;
    }
}

/// Rows of the screen that a line takes.
fn rows_of(line: &str, columns: u16) -> usize {
    measure_text_width(line).div_ceil(usize::from(columns).max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_are_wrapped_take_several_rows() {
        let lines = ["1234567890", "12345678901", "", "1"];
        // One row is the cursor's.
        for (rows, columns, has_more, fitting) in [
            (6, 10, false, 4),
            (6, 10, true, 3),
            (7, 10, true, 4),
            (5, 10, false, 2),
            (4, 10, false, 1),
            (2, 10, false, 0),
            (1, 10, true, 0),
            (5, 11, false, 4),
            (23, 1, false, 2),
            (24, 1, false, 4),
            (24, 0, false, 4),
        ] {
            let found = Screen::fitting((rows, columns), &lines, has_more);
            assert_eq!(found, fitting, "{rows} rows, {columns} columns");
        }
    }
}
