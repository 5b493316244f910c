//! Whole systems in simulated time.

/// Reads the bytes as a story of workers, producers and faults, and plays it.
///
/// # Panics
///
/// A promise is broken.
pub fn simulation(data: &[u8]) {
    if let Err(what) = delayline_sim::play_bytes(data) {
        panic!("{what}");
    }
}
