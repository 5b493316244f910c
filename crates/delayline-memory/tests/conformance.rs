//! The whole conformance suite on the in-memory backend.

use std::process::ExitCode;
use std::sync::Arc;

use delayline_core::{Error, QueueBackend};
use delayline_memory::MemoryBackend;
use delayline_testkit::{Fixture, async_trait};

struct Memory;

#[async_trait]
impl Fixture for Memory {
    async fn fresh(&self) -> Result<Arc<dyn QueueBackend>, Error> {
        Ok(Arc::new(MemoryBackend::new()))
    }
}

fn main() -> ExitCode {
    delayline_testkit::main("memory", Memory)
}
