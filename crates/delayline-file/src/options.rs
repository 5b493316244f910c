//! Options of a directory.

/// Options of a directory. The defaults suit nearly all programs.
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
    /// Sets the size of a segment of the log in bytes: 64 MiB by default, and at most an eighth of
    /// the disk. Once the segments
    /// together are larger than this and than the latest snapshot, the next snapshot replaces them.
    #[must_use]
    pub const fn segment_bytes(self, bytes: u64) -> Self {
        Self { segment: at_most(bytes, MOST), ..self }
    }

    /// Sets the number of bytes of the log that are reserved for operations that drain a queue on a
    /// full disk. The default is 8 MiB, and at most an eighth of the disk. Messages never use this
    /// reserve.
    #[must_use]
    pub const fn reserve_bytes(self, bytes: u64) -> Self {
        Self { reserve: at_most(bytes, MOST), ..self }
    }

    /// Sets the number of bytes by which the log's file grows: 4 MiB by default, and at most an
    /// eighth of the disk.
    #[must_use]
    pub const fn chunk_bytes(self, bytes: u64) -> Self {
        Self { chunk: at_most(bytes, MOST), ..self }
    }

    /// Opens the directory even if the clock is far behind its last use, and continues from the
    /// clock. From the first operation on, this clock counts. By default, this is refused, because
    /// such a clock is usually wrong, and delays a queue for as long as it is behind.
    #[must_use]
    pub const fn accept_clock(self, accept: bool) -> Self {
        Self { accept_clock: accept, ..self }
    }
}

impl Options {
    /// Fits these sizes to a disk of `bytes`.
    pub(crate) const fn on_disk_of(self, bytes: u64) -> Self {
        let most = bytes / 8;
        Self {
            segment: at_most(self.segment, most),
            reserve: at_most(self.reserve, most),
            chunk: at_most(self.chunk, most),
            ..self
        }
    }
}

const fn at_most(bytes: u64, most: u64) -> u64 {
    if bytes < most { bytes } else { most }
}

/// Larger than any disk, so that sums of sizes do not overflow.
const MOST: u64 = 1 << 56;

impl Default for Options {
    fn default() -> Self {
        Self { segment: 64 << 20, reserve: 8 << 20, chunk: 4 << 20, accept_clock: false }
    }
}
