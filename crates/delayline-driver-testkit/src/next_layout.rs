//! A version with a next layout, which only tests know: the same scripts, behind a shim that moves
//! fields, and the conversion to it.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use delayline_core::{Error, QueueName};
use delayline_redis_protocol::{
    CallError, Conversion, SCHEMA_VERSION, ScriptBackend, ScriptCall, ScriptName, Transport, Value,
    all_scripts,
};
use delayline_testkit::async_trait;

use crate::Connect;

const SHIM: &str = include_str!("next_layout/shim.lua");

// The shim and the conversion say 2 and 3.
const _: () = assert!(SCHEMA_VERSION == 2);

/// The schema version of the next layout.
pub const NEXT: u64 = SCHEMA_VERSION + 1;

/// What the next version would have as its conversions.
pub fn conversions() -> [Conversion; 1] {
    let source = include_str!("next_layout/conversion.lua");
    [Conversion::new("to_the_next_layout.lua", SCHEMA_VERSION, source)]
}

/// The transport of the next version: each script reads and writes the next layout.
#[derive(Debug)]
pub struct NextLayout<T>(pub Arc<T>);

/// Each script, and its source in the next version.
static SHIMMED: LazyLock<Vec<(&str, String)>> = LazyLock::new(|| {
    let shimmed = |source: &str| format!("{SHIM}{source}");
    all_scripts().into_iter().map(|script| (&*script.sha1, shimmed(&script.source))).collect()
});

#[async_trait]
impl<T: Transport> Transport for NextLayout<T> {
    async fn call(&self, mut call: ScriptCall<'_>) -> Result<Value, CallError> {
        if let ScriptName::Sha1(sha1) = call.script
            && let Some((_, source)) = SHIMMED.iter().find(|(known, _)| *known == sha1)
        {
            call.script = ScriptName::Source(source);
        }
        self.0.call(call).await
    }

    async fn wait(&self, bell: &Bytes, timeout: Duration) -> Result<bool, CallError> {
        self.0.wait(bell, timeout).await
    }

    async fn info(&self, key: &Bytes) -> Result<String, CallError> {
        self.0.info(key).await
    }
}

/// One queue, as this version and as the next one see it.
pub struct Versions<T: Transport> {
    pub this: ScriptBackend<T>,
    pub next: ScriptBackend<NextLayout<T>>,
}

impl<T: Transport> Versions<T> {
    /// Connects to the queue of this name, whatever layout it has.
    pub async fn open<C: Connect<Transport = T>>(url: &str, name: &str) -> Result<Self, Error> {
        let transport = Arc::new(C::connect(&url.parse().unwrap()).await?);
        let name = QueueName::new(name).unwrap();
        let next = Arc::new(NextLayout(Arc::clone(&transport)));
        Ok(Self {
            this: ScriptBackend::open_any_layout(transport, name.clone(), false).await?,
            next: ScriptBackend::open_any_layout(next, name, false).await?,
        })
    }
}
