//! How far a long job has come: a bar on stderr, and nothing unless that is a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar over a number of messages.
pub(crate) fn messages(total: u64) -> ProgressBar {
    styled(ProgressBar::new(total), "{bar:30} {human_pos}/{human_len} {msg} ({eta} left)")
}

/// A progress counter with an unknown total.
pub(crate) fn endless() -> ProgressBar {
    styled(ProgressBar::new_spinner(), "{spinner} {human_pos} {msg}")
}

/// A progress bar over a number of bytes, or a counter if the total is unknown.
pub(crate) fn bytes(total: Option<u64>) -> ProgressBar {
    match total {
        Some(total) => {
            styled(ProgressBar::new(total), "{bar:30} {bytes}/{total_bytes} {msg} ({eta} left)")
        }
        None => styled(ProgressBar::new_spinner(), "{spinner} {bytes} {msg}"),
    }
}

fn styled(bar: ProgressBar, template: &str) -> ProgressBar {
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    if !bar.is_hidden() {
        bar.enable_steady_tick(Duration::from_millis(200));
    }
    bar
}
