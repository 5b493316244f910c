//! What a server says of the layout of a queue, and of the pages of its conversion.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arbitrary::{Arbitrary, Result, Unstructured};
use async_trait::async_trait;
use bytes::Bytes;
use delayline_core::{Error, ErrorKind, QueueName};
use delayline_redis_protocol::{
    CallError, Conversion, ScriptBackend, ScriptCall, Transport, Upgrade, Value,
};

use crate::reply::is_of_a_reply;

/// Converts a queue of a server that answers each call with what the bytes say.
///
/// # Panics
///
/// A step panics, says that more was seen than there is, or fails in another way than it says.
pub fn upgrade(data: &[u8]) {
    let mut data = Unstructured::new(data);
    let mut answers = Vec::new();
    while !data.is_empty() && answers.len() < MOST_ANSWERS {
        let Ok(answer) = answer(&mut data) else { break };
        answers.push(answer);
    }
    let count = answers.len();
    answers.reverse();
    let transport = Arc::new(Answers(Mutex::new(answers)));
    let Ok(name) = QueueName::new("orders") else { return };
    // No script runs: only the versions count.
    let conversions = [1, 2, 3].map(|from| Conversion::new("fuzzed.lua", from, ""));
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime starts").block_on(async {
        let Ok(queue) = ScriptBackend::open_any_layout(transport, name, true).await else { return };
        for step in 0..count {
            let known = &conversions[..step % 4];
            check(queue.upgrade_status(known).await);
            check(queue.upgrade_page(known).await);
        }
    });
}

fn check(answer: std::result::Result<Upgrade, Error>) {
    match answer {
        Ok(upgrade) => {
            assert!(upgrade.exists || !upgrade.is_needed(), "{upgrade:?}");
            let _ = format!("{upgrade:?}");
        }
        // `Unsupported` is what a script that relays may say.
        Err(error) => assert!(
            is_of_a_reply(error.kind()) || matches!(error.kind(), ErrorKind::Unsupported(_)),
            "{error:?}"
        ),
    }
}

const MOST_ANSWERS: usize = 32;

/// The head of a script's reply, and small numbers: versions, marks and counts; or any number.
fn answer(data: &mut Unstructured<'_>) -> Result<Value> {
    let mut values = match data.arbitrary::<u8>()? {
        0 => Vec::new(),
        1 => return Ok(Value::Nil),
        _ => vec![Value::Int(0), Value::Int(0), Value::Int(0)],
    };
    for _ in 0..data.arbitrary::<u8>()? % 6 {
        values.push(match data.arbitrary::<u8>()? {
            255 => Value::Int(i64::arbitrary(data)?),
            254 => Value::Nil,
            253 => Value::Bytes(Bytes::from_static(b"2")),
            252 => Value::Int(255),
            small => Value::Int(i64::from(small % 5)),
        });
    }
    Ok(Value::Array(values))
}

/// A server that answers each script with the next one of these.
#[derive(Debug)]
struct Answers(Mutex<Vec<Value>>);

#[async_trait]
impl Transport for Answers {
    async fn call(&self, _: ScriptCall<'_>) -> std::result::Result<Value, CallError> {
        let next = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Ok(next.unwrap_or(Value::Nil))
    }

    async fn wait(&self, _: &Bytes, _: Duration) -> std::result::Result<bool, CallError> {
        Ok(false)
    }

    async fn info(&self, _: &Bytes) -> std::result::Result<String, CallError> {
        Ok("redis_version:7.0.15\r\nmaxmemory_policy:noeviction\r\n".to_owned())
    }
}
