//! The whole conformance suite on directories, which are opened again as a crash leaves them.

#![allow(clippy::unwrap_used, reason = "a trial fails by a panic")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use delayline_core::{Error, QueueBackend, QueueName};
use delayline_file::{Directory, Options};
use delayline_testkit::{Fixture, async_trait};
use tempfile::TempDir;

/// Knows the directory of each queue, by the queue's name.
#[derive(Default)]
struct Files {
    created: AtomicUsize,
    open: Mutex<Vec<(QueueName, TempDir)>>,
}

const OPTIONS: fn() -> Options =
    || Options::default().segment_bytes(16 << 10).reserve_bytes(8 << 20).chunk_bytes(64 << 10);

impl Files {
    fn open(&self, name: QueueName, directory: TempDir) -> Result<Arc<dyn QueueBackend>, Error> {
        let queue = Directory::open(directory.path(), OPTIONS())?.queue(name.clone())?;
        self.open.lock().unwrap().push((name, directory));
        Ok(Arc::new(queue))
    }
}

/// Copies the files as they are at one instant: again if a checkpoint has replaced some meanwhile.
fn copy(from: &Path) -> TempDir {
    let names = || {
        let names = fs::read_dir(from).unwrap().map(|file| file.unwrap().file_name());
        names.collect::<BTreeSet<_>>()
    };
    loop {
        let to = tempfile::tempdir().unwrap();
        let before = names();
        let copied =
            before.iter().all(|name| fs::copy(from.join(name), to.path().join(name)).is_ok());
        if copied && names() == before {
            return to;
        }
    }
}

#[async_trait]
impl Fixture for Files {
    async fn fresh(&self) -> Result<Arc<dyn QueueBackend>, Error> {
        // Queues of former trials are closed by now, or their directories go when the program ends.
        let number = self.created.fetch_add(1, Ordering::Relaxed);
        let directory = tempfile::tempdir().unwrap();
        self.open(QueueName::new(format!("queue/{number}"))?, directory)
    }

    /// In turns, closes it, or copies what a killed process would leave.
    async fn reopen(
        &self,
        queue: Arc<dyn QueueBackend>,
    ) -> Result<Option<Arc<dyn QueueBackend>>, Error> {
        let name = queue.queue_name().unwrap().clone();
        let directory = {
            let mut open = self.open.lock().unwrap();
            let index = open.iter().position(|(other, _)| *other == name).unwrap();
            open.swap_remove(index).1
        };
        if self.created.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
            drop(queue);
            return self.open(name, directory).map(Some);
        }
        let killed = copy(directory.path());
        drop(queue);
        self.open(name, killed).map(Some)
    }

    fn random_cases(&self) -> u32 {
        200
    }
}

fn main() -> ExitCode {
    delayline_testkit::main("file", Files::default())
}
