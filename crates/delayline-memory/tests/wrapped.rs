//! The suite on the in-memory backend behind a wrapper that changes nothing.

use std::process::ExitCode;
use std::sync::Arc;

use delayline_core::{Error, QueueBackend};
use delayline_memory::MemoryBackend;
use delayline_testkit::{Faulty, Fixture, async_trait};

struct Wrapped;

#[async_trait]
impl Fixture for Wrapped {
    async fn fresh(&self) -> Result<Arc<dyn QueueBackend>, Error> {
        Ok(Arc::new(Faulty::new(MemoryBackend::new(), [])))
    }
}

fn main() -> ExitCode {
    delayline_testkit::main("memory behind a wrapper", Wrapped)
}
