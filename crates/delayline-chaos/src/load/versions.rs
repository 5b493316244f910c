//! A later version of the library: its scripts differ, and it knows one more feature.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use delayline_core::{ErrorKind, Op};
use delayline_redis_protocol::layout::{codes::uses, control};
use delayline_redis_protocol::{
    CallError, Script, ScriptCall, ScriptName, Transport, Value, all_scripts,
};
use delayline_testkit::Call;

use crate::log::{Entry, Outcome};

/// What a queue may have of the later version's feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Feature {
    /// Nothing: both versions work on it from beginning to end.
    Unused,
    /// As soon as its limits are set, the queue uses the feature, and this version refuses it.
    ComesWithLimits,
}

/// The transport of the later version.
#[derive(Debug)]
pub(crate) struct Later {
    inner: Arc<dyn Transport>,
    /// Its scripts, by the digests of this version's.
    scripts: HashMap<&'static str, Text>,
}

#[derive(Debug)]
struct Text {
    /// As this version has it.
    known: &'static str,
    source: String,
    sha1: String,
}

impl Later {
    pub(crate) fn over(inner: Arc<dyn Transport>, feature: Feature) -> Arc<dyn Transport> {
        let text = |script: &'static Script| {
            let source = later(&script.source, feature);
            let sha1 = sha1_smol::Sha1::from(&source).digest().to_string();
            (script.sha1.as_str(), Text { known: &script.source, source, sha1 })
        };
        Arc::new(Self { inner, scripts: all_scripts().into_iter().map(text).collect() })
    }
}

/// A script as the later version has it.
fn later(source: &str, feature: Feature) -> String {
    let (known, new) = (uses::ALL, uses::ALL + 1);
    let source = source
        .replace("-- delayline ", "-- delayline later than ")
        .replace(&format!("uses > {known}"), &format!("uses > {}", known + new));
    if feature == Feature::Unused {
        return source;
    }
    let limits = format!("control.uses = bit.bor(control.uses, {}", uses::LIMITS);
    let both = format!("control.uses = bit.bor(control.uses, {}", uses::LIMITS + new);
    let needs = control::NEEDS.offset.unwrap_or_default();
    let written = format!(
        "c.limits)\n  if c.uses > {known} then redis.call('SETRANGE', KEYS[1], {needs}, '\\3\\1') end"
    );
    source.replace(&limits, &both).replace("c.limits)", &written)
}

#[async_trait]
impl Transport for Later {
    async fn call(&self, mut call: ScriptCall<'_>) -> Result<Value, CallError> {
        let text = match call.script {
            ScriptName::Sha1(sha1) => self.scripts.get(sha1),
            ScriptName::Source(known) => self.scripts.values().find(|text| text.known == known),
        };
        call.script = match (text, call.script) {
            (Some(text), ScriptName::Sha1(_)) => ScriptName::Sha1(&text.sha1),
            (Some(text), ScriptName::Source(_)) => ScriptName::Source(&text.source),
            (None, script) => script,
        };
        self.inner.call(call).await
    }

    async fn wait(&self, bell: &Bytes, timeout: Duration) -> Result<bool, CallError> {
        self.inner.wait(bell, timeout).await
    }

    async fn info(&self, key: &Bytes) -> Result<String, CallError> {
        self.inner.info(key).await
    }
}

/// Judges the calls of a version that does not know the feature of the limits. Until the limits are
/// set, it works; from then on it is refused, and nothing else. `order` has the executed
/// calls. Returns the number of refusals.
///
/// # Errors
///
/// The first call that was treated otherwise.
pub(crate) fn judge(entries: &[Entry], client: &str, order: &[Call]) -> Result<usize, String> {
    let is_set = |op: &Op| matches!(op, Op::SetLimits(_));
    let set = order.iter().find(|call| is_set(&call.op));
    let mut refused = 0;
    for entry in entries.iter().filter(|entry| entry.client == client) {
        let returned = entry.returned.unwrap_or(Duration::MAX);
        match (&entry.outcome, set) {
            // One that was answered before, by an operation that is lost, has no such revision.
            (Outcome::Answered(applied), Some(set))
                if applied.revision >= set.applied.revision && returned > set.called =>
            {
                return Err(format!("an outdated version was answered: {entry:?}, after {set:?}"));
            }
            (Outcome::NotExecuted(error), _) => match error.kind() {
                ErrorKind::NewerFeature { major: 3, minor: 1 } => {
                    let asked = |it: &Entry| is_set(&it.op) && it.called < returned;
                    if !entries.iter().any(asked) {
                        return Err(format!("refused before the feature was used: {entry:?}"));
                    }
                    refused += 1;
                }
                ErrorKind::NewerFeature { .. } | ErrorKind::Damaged => {
                    return Err(format!("refused for a wrong reason: {entry:?}"));
                }
                _ => {}
            },
            _ => {}
        }
    }
    Ok(refused)
}
