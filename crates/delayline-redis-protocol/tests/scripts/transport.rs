//! A transport that sends a mutant in the place of its script.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use delayline_core::Error;
use delayline_redis_protocol::{
    CallError, ConnectOptions, Script, ScriptCall, ScriptName, Transport, Value, all_scripts,
};
use delayline_testkit::async_trait;

use crate::plain::PlainTransport;

/// What every connection of this process sends.
static SENT: Mutex<Sent> = Mutex::new(Sent { mutants: Vec::new(), used: BTreeSet::new() });

struct Sent {
    mutants: Vec<Substitute>,
    /// Which scripts were called.
    used: BTreeSet<usize>,
}

/// The text that is sent instead of a script.
#[derive(Clone)]
pub(crate) struct Substitute {
    pub(crate) script: &'static Script,
    pub(crate) source: String,
    /// As the server says it.
    pub(crate) sha1: String,
}

/// From now on scripts are these.
pub(crate) fn substitute(mutants: Vec<Substitute>) {
    sent().mutants = mutants;
}

/// From now on, scripts are sent unchanged.
pub(crate) fn restore() {
    sent().mutants.clear();
}

/// Which scripts were called since this was asked last.
pub(crate) fn take_used() -> BTreeSet<usize> {
    std::mem::take(&mut sent().used)
}

fn sent() -> MutexGuard<'static, Sent> {
    SENT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A plain connection.
#[derive(Debug)]
pub(crate) struct Mutated(PlainTransport);

impl Mutated {
    pub(crate) async fn connect(options: &ConnectOptions) -> Result<Self, Error> {
        Ok(Self(PlainTransport::connect(options).await?))
    }
}

#[async_trait]
impl Transport for Mutated {
    async fn call(&self, mut call: ScriptCall<'_>) -> Result<Value, CallError> {
        let named = |script: &Script| match call.script {
            ScriptName::Sha1(sha1) => script.sha1 == sha1,
            ScriptName::Source(source) => script.source == source,
        };
        let mutant = {
            let mut sent = sent();
            sent.used.extend(all_scripts().iter().position(|script| named(script)));
            sent.mutants.iter().find(|mutant| named(mutant.script)).cloned()
        };
        call.script = match (&mutant, call.script) {
            (Some(mutant), ScriptName::Sha1(_)) => ScriptName::Sha1(&mutant.sha1),
            (Some(mutant), ScriptName::Source(_)) => ScriptName::Source(&mutant.source),
            (None, script) => script,
        };
        self.0.call(call).await
    }

    async fn wait(&self, bell: &Bytes, timeout: Duration) -> Result<bool, CallError> {
        self.0.wait(bell, timeout).await
    }

    async fn info(&self, key: &Bytes) -> Result<String, CallError> {
        self.0.info(key).await
    }
}
