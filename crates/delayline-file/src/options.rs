//! How a directory is used.

/// How a directory is used. The defaults suit nearly all programs.
///
/// ```
/// use delayline_file::Options;
///
/// let small = Options::default().segment_bytes(8 << 20).reserve_bytes(1 << 20);
/// # let _ = small;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    pub(crate) segment: u64,
    pub(crate) reserve: u64,
    pub(crate) chunk: u64,
    pub(crate) accept_clock: bool,
}

impl Options {
    /// Sets the size of a segment of the log in bytes: 64 MiB by default. Once the segments
    /// together are larger than this and than the latest snapshot, the next snapshot replaces them.
    #[must_use]
    pub const fn segment_bytes(self, bytes: u64) -> Self {
        Self { segment: bytes, ..self }
    }

    /// Sets how many bytes of the log are kept free for operations that drain a queue when the disk
    /// is full: 8 MiB by default. Messages are refused before it is touched.
    #[must_use]
    pub const fn reserve_bytes(self, bytes: u64) -> Self {
        Self { reserve: bytes, ..self }
    }

    /// Sets by how many bytes the log's file grows at a time: 4 MiB by default.
    #[must_use]
    pub const fn chunk_bytes(self, bytes: u64) -> Self {
        Self { chunk: bytes, ..self }
    }

    /// Opens the directory even if the clock is far behind the time at which it was last used, and
    /// goes on from the clock. The first operation makes the clock the one that counts. By default
    /// that is refused, because such a clock is mostly wrong, and delays a queue for as long as it
    /// is behind.
    #[must_use]
    pub const fn accept_clock(self, accept: bool) -> Self {
        Self { accept_clock: accept, ..self }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self { segment: 64 << 20, reserve: 8 << 20, chunk: 4 << 20, accept_clock: false }
    }
}
