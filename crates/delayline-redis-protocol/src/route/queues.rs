//! The names of all queues on a server: for operators.

use std::collections::BTreeSet;
use std::sync::Arc;

use delayline_core::{Error, QueueName};

use crate::keys::{CONTROL, KEY_PREFIX};
use crate::link::Link;
use crate::link::driver::Driver;
use crate::{QueueList, Value};

use super::directory::{no_answer, refusal, words};
use super::node::{Node, Nodes};
use super::primaries::Asked;

/// The queues of all primaries. A silent one hides its own queues only.
///
/// # Errors
///
/// No primary could be read.
pub(super) async fn scan_all<D: Driver>(
    nodes: &Nodes<D>,
    most_keys: u64,
) -> Result<QueueList, Error> {
    let scan_one = |node: Arc<Node<D>>| async move {
        let mut names = BTreeSet::new();
        let outcome = scan(&node.link, most_keys, &mut names).await;
        (names, outcome)
    };
    let mut found = QueueList { complete: true, ..QueueList::default() };
    let asked = Asked::all(nodes, scan_one, |(names, outcome)| {
        // A scan that failed on its way has names as well.
        found.names.extend(names);
        found.complete &= outcome?;
        Ok(())
    });
    found.failure = asked.await.failure()?;
    found.complete &= found.failure.is_none();
    Ok(found)
}

/// Adds the queues of one server to `found`, from about as many of its keys. Whether these were
/// all.
pub(crate) async fn scan<D: Driver>(
    link: &Link<D>,
    most_keys: u64,
    found: &mut BTreeSet<QueueName>,
) -> Result<bool, Error> {
    let (before, after) = (format!("{KEY_PREFIX}{{"), format!("}}:{CONTROL}"));
    let pattern = format!("{before}*{after}");
    let mut cursor = "0".to_owned();
    for _ in 0..most_keys.div_ceil(KEYS_A_STEP) {
        let count = KEYS_A_STEP.to_string();
        let args = words(&[&cursor, "MATCH", &pattern, "COUNT", &count]);
        let reply = link.request("SCAN", args).await.map_err(refusal)?;
        let Value::Array(parts) = reply else { return Err(no_answer("SCAN")) };
        let [Value::Bytes(next), Value::Array(keys)] = &parts[..] else {
            return Err(no_answer("SCAN"));
        };
        for key in keys {
            let Value::Bytes(key) = key else { return Err(no_answer("SCAN")) };
            let name = std::str::from_utf8(key).ok();
            let name = name.and_then(|key| key.strip_prefix(&before)?.strip_suffix(&after));
            // Keys of others may look similar.
            found.extend(name.and_then(|name| QueueName::new(name).ok()));
        }
        let next = String::from_utf8_lossy(next).into_owned();
        if next == "0" {
            return Ok(true);
        }
        if next == cursor {
            return Err(no_answer("SCAN"));
        }
        cursor = next;
    }
    Ok(false)
}

/// Enough to be quick, and few enough not to hold up a server.
const KEYS_A_STEP: u64 = 1_000;
