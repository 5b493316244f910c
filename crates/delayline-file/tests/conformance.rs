//! The whole conformance suite on directories, which are opened again as a crash leaves them.

#![allow(clippy::unwrap_used, reason = "a trial fails by a panic")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use delayline_core::{Error, QueueBackend, QueueName};
use delayline_file::{Directory, Options};
use delayline_testkit::{Fixture, async_trait};
use tempfile::TempDir;

/// Knows the directory of each queue.
#[derive(Default)]
struct Files {
    created: AtomicUsize,
    open: Mutex<Vec<Open>>,
}

struct Open {
    name: QueueName,
    queue: Weak<dyn QueueBackend>,
    directory: Directory,
    files: TempDir,
}

const OPTIONS: fn() -> Options =
    || Options::default().segment_bytes(16 << 10).reserve_bytes(8 << 20).chunk_bytes(64 << 10);

impl Files {
    fn open(&self, name: QueueName, files: TempDir) -> Result<Arc<dyn QueueBackend>, Error> {
        let directory = Directory::open(files.path(), OPTIONS())?;
        let queue: Arc<dyn QueueBackend> = Arc::new(directory.queue(name.clone())?);
        let open = Open { name, queue: Arc::downgrade(&queue), directory, files };
        self.open.lock().unwrap().push(open);
        Ok(queue)
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
        // Those of former trials. Closing takes a while, so it is done without the lock.
        let is_unused = |open: &mut Open| open.queue.strong_count() == 0;
        let former: Vec<_> = self.open.lock().unwrap().extract_if(.., is_unused).collect();
        drop(former);
        let number = self.created.fetch_add(1, Ordering::Relaxed);
        self.open(QueueName::new(format!("queue/{number}"))?, tempfile::tempdir().unwrap())
    }

    /// In the same process: no other may open the directory.
    async fn another(
        &self,
        queue: &Arc<dyn QueueBackend>,
    ) -> Result<Option<Arc<dyn QueueBackend>>, Error> {
        let name = queue.queue_name().unwrap();
        let open = self.open.lock().unwrap();
        let directory = &open.iter().find(|open| open.name == *name).unwrap().directory;
        Ok(Some(Arc::new(directory.queue(name.clone())?)))
    }

    /// In turns, closes it, or copies what a killed process would leave.
    async fn reopen(
        &self,
        queue: Arc<dyn QueueBackend>,
    ) -> Result<Option<Arc<dyn QueueBackend>>, Error> {
        let name = queue.queue_name().unwrap().clone();
        let Open { directory, files, .. } = {
            let mut open = self.open.lock().unwrap();
            let index = open.iter().position(|open| open.name == name).unwrap();
            open.swap_remove(index)
        };
        if self.created.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
            drop((queue, directory));
            return self.open(name, files).map(Some);
        }
        let killed = copy(files.path());
        drop((queue, directory));
        self.open(name, killed).map(Some)
    }

    fn random_cases(&self) -> u32 {
        200
    }
}

fn main() -> ExitCode {
    delayline_testkit::main("file", Files::default())
}
