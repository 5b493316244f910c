//! This machine's clock.

/// The local time, which is only shown: due times follow the server's clock.
pub(crate) fn now() -> delayline::Timestamp {
    std::time::SystemTime::now().try_into().unwrap_or_default()
}
