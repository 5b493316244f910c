//! A wall clock for one server, which tests set.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::StartError;

/// A small library that is loaded into the server and stands between it and the machine's clock.
pub(crate) struct Clock {
    library: PathBuf,
    step: PathBuf,
}

impl Clock {
    /// Compiles the library into `home`.
    pub(crate) fn make(home: &Path) -> Result<Self, StartError> {
        let clock = Self { library: home.join("clock.so"), step: home.join("clock-step") };
        let source = home.join("clock.c");
        fs::write(&source, include_str!("clock.c")).map_err(StartError::io("write the clock"))?;
        fs::write(&clock.step, [0; 8]).map_err(StartError::io("write the clock's step"))?;
        let status = Command::new("cc")
            .args(["-shared", "-fPIC", "-O2", "-o"])
            .arg(&clock.library)
            .arg(&source)
            .stdin(Stdio::null())
            .status()
            .map_err(StartError::io("run cc, which makes the server's clock"))?;
        if status.success() {
            return Ok(clock);
        }
        let reason = std::io::Error::other(format!("cc ended with {status}"));
        Err(StartError::io("compile the server's clock")(reason))
    }

    /// What the environment of a server needs for it to go by this clock.
    pub(crate) fn environment(&self) -> [(&'static str, &Path); 2] {
        [("LD_PRELOAD", &self.library), ("DELAYLINE_CLOCK_STEP", &self.step)]
    }

    /// Sets the clock so far ahead of the machine's; the server sees it at once.
    pub(crate) fn set_step(&self, ms: i64) -> std::io::Result<()> {
        // In place: the server has the file in its memory.
        File::options().write(true).open(&self.step)?.write_all_at(&ms.to_ne_bytes(), 0)
    }
}
