//! Upgrades: queues are converted to the layout of this version, page by page, on request.
//!
//! `lua/parts/converting.lua` has the protocol. Old and new versions refuse the queue with
//! [`ErrorKind::Upgrading`] from the first page to the last.

use bytes::Bytes;
use delayline_core::{Error, ErrorKind};

use crate::backend::ScriptBackend;
use crate::decode::{Converted, Layout, decode_conversion, decode_layout};
use crate::layout::{CONVERTING, SCHEMA_VERSION};
use crate::script::{Script, UPGRADE};
use crate::transport::{CallError, Transport};

/// Entries of one page of a conversion.
const PAGE: usize = 500;

/// A script that converts queues from one schema version to the next.
#[derive(Debug)]
pub struct Conversion {
    from: u64,
    script: Script,
}

impl Conversion {
    /// Assembles the conversion from the schema version `from` to the next one. `source` is a file
    /// as in `lua/`; `lua/parts/converting.lua` says what it consists of.
    #[must_use]
    pub fn new(name: &'static str, from: u64, source: &str) -> Self {
        Self { from, script: Script::new(name, source) }
    }
}

/// The conversions of this version, from the oldest schema version that it can convert. There is
/// none yet: no version with another layout was released.
#[must_use]
pub const fn conversions() -> &'static [Conversion] {
    &[]
}

/// How far the upgrade of a queue is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Upgrade {
    /// Whether the queue exists.
    pub exists: bool,
    /// The schema version of the queue. While it is being converted, that from which.
    pub version: u64,
    /// The schema version of this library. A queue that is several versions behind is converted to
    /// each of them in turn.
    pub target: u64,
    /// Whether a conversion has begun and not ended.
    pub begun: bool,
    /// Entries that the current conversion has looked at. A restart of the server sets it back.
    pub seen: u64,
    /// Entries that the current conversion will look at; 0 if none is needed.
    pub total: u64,
}

impl Upgrade {
    /// Returns `true` if the queue has an older layout, or is being converted.
    #[must_use]
    pub const fn is_needed(&self) -> bool {
        self.exists && self.version < self.target
    }
}

impl<T: Transport + ?Sized> ScriptBackend<T> {
    /// Returns which layout the queue has, and how much there is to convert. Changes nothing.
    ///
    /// # Cancel safety
    ///
    /// This call changes nothing; its future can be dropped.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NewerVersion`]; [`ErrorKind::OlderVersion`] if none of `conversions` begins at
    /// the queue's layout; [`ErrorKind::Damaged`]; and like a call.
    pub async fn upgrade_status(&self, conversions: &[Conversion]) -> Result<Upgrade, Error> {
        self.convert(conversions, 0).await
    }

    /// Converts the next page of the queue, of up to 500 entries, if it has an older layout. The
    /// first call only begins: from then on every other operation on the queue fails with
    /// [`ErrorKind::Upgrading`]. The last one ends that, and versions that do not know the new
    /// layout refuse the queue from then on. Repeat the call until [`Upgrade::is_needed`] returns
    /// `false`.
    ///
    /// Several clients may do so at once, and any client may continue where another one has
    /// stopped.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the page may have been converted. It is safe to call it again.
    ///
    /// # Errors
    ///
    /// Like [`upgrade_status`](Self::upgrade_status). After any error that is not
    /// [`Rejected`](delayline_core::ErrorClass::Rejected) the call can be repeated.
    pub async fn upgrade_page(&self, conversions: &[Conversion]) -> Result<Upgrade, Error> {
        self.convert(conversions, PAGE).await
    }

    /// Converts the queue to the last layout of `conversions`, and calls `progress` after each
    /// page. Does nothing if the queue has that layout, or does not exist.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the queue stays as far as it is. Call again to continue, from any
    /// process.
    ///
    /// # Errors
    ///
    /// Like [`upgrade_page`](Self::upgrade_page).
    pub async fn upgrade(
        &self,
        conversions: &[Conversion],
        mut progress: impl FnMut(&Upgrade),
    ) -> Result<Upgrade, Error> {
        loop {
            let upgrade = self.upgrade_page(conversions).await?;
            progress(&upgrade);
            if !upgrade.is_needed() {
                return Ok(upgrade);
            }
        }
    }

    async fn convert(&self, conversions: &[Conversion], limit: usize) -> Result<Upgrade, Error> {
        let layout = self.run(self.keys(), &UPGRADE, &[], None).await;
        let layout = layout.map_err(CallError::into_error).and_then(decode_layout)?;
        let target = conversions.last().map_or(SCHEMA_VERSION, |last| last.from + 1);
        let done = |exists, version| Ok(Upgrade { exists, version, target, ..Upgrade::default() });
        let (version, newest) = match layout {
            Layout::Absent => return done(false, target),
            // Every operation takes it for one of its own layout.
            Layout::Unknown => return done(true, target),
            Layout::Version(version) if version == target => return done(true, target),
            Layout::Version(0) => return Err(self.damaged(None)),
            Layout::Version(version) => (version, version),
            Layout::Converting { from, to } if from == 0 || from + 1 != to => {
                return Err(self.damaged(None));
            }
            Layout::Converting { from, to } => (from, to),
        };
        if newest > target {
            let kind = ErrorKind::NewerVersion { found: newest, supported: target };
            return Err(Error::new(kind));
        }
        let Some(Conversion { script, .. }) = conversions.iter().find(|it| it.from == version)
        else {
            let kind = ErrorKind::OlderVersion { found: version, supported: target };
            return Err(Error::with_detail(kind, "this version cannot upgrade it"));
        };
        let args = [version.to_string().into(), limit.to_string().into()];
        let page = self.run(self.keys(), script, &args, None).await;
        let page = page.map_err(CallError::into_error).and_then(decode_conversion);
        let Converted { version, begun, seen, total } =
            page.map_err(|error| match error.kind() {
                ErrorKind::Damaged => self.damaged(Some((version, newest))),
                _ => error,
            })?;
        Ok(Upgrade { exists: true, version, target, begun, seen, total })
    }

    /// What helps if the control record, or the mark in its place, is damaged.
    fn damaged(&self, versions: Option<(u64, u64)>) -> Error {
        let key: Bytes = self.control_key();
        let key = String::from_utf8_lossy(&key);
        let detail = match versions {
            Some((from, to)) if from < to => format!(
                "the mark of an upgrade: set the key {key} to the bytes {CONVERTING}, {from}, {to}, \
                 repeat the upgrade, and then repair the queue; no message is lost, but the queue \
                 loses its totals, its limits and its order, and is not paused: set the limits again \
                 before workers resume"
            ),
            Some((from, _)) => format!(
                "{key}: repair the queue with the version of the library that wrote schema version \
                 {from}, and then upgrade it"
            ),
            None => format!(
                "{key}: if no upgrade was interrupted, delete the key with the version of the \
                 library that wrote the queue, and repair the queue with it"
            ),
        };
        Error::with_detail(ErrorKind::Damaged, detail)
    }
}
