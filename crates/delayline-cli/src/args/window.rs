//! A window of due times.

/// The bounds of a window of due times.
#[derive(clap::Args)]
pub(crate) struct Window {
    /// Beginning of the window: 14:00, tomorrow 09:00, monday 09:00 in the time zone of this
    /// machine (or TZ), 2026-12-01T09:00:00Z, unix time (10 digits in seconds, 13 in milliseconds),
    /// or a delay from now such as 30m [default: now]
    #[arg(long, value_name = "INSTANT")]
    pub(crate) from: Option<String>,

    /// End of the window: messages are due before it [default: none]
    #[arg(long, value_name = "INSTANT")]
    pub(crate) until: Option<String>,
}

impl Window {
    /// Returns `true` if a window was requested.
    pub(crate) const fn is_given(&self) -> bool {
        self.from.is_some() || self.until.is_some()
    }
}
