//! Replies of nodes and sentinels about each other.

#[path = "../../crates/delayline-redis-protocol/tests/routing/fake.rs"]
mod fake;

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use arbitrary::{Result, Unstructured};
use bytes::Bytes;
use delayline_redis_protocol::{ScriptCall, ScriptName, Transport, Value};
use tokio::runtime::Builder;
use tokio::time::timeout;

use fake::{Answer, World};

/// Far more than the time that a call may take.
const LIMIT: Duration = Duration::from_secs(60);
/// Maximum number of servers that one call is sent to.
const MOST_SENT: usize = 6;
const CALLS: usize = 3;

/// Connects to servers of a cluster, or behind sentinels, that give the replies in the bytes, one
/// after the other, and then refuse.
///
/// # Panics
///
/// If connecting or calling panics or never ends, if a call is sent too often, or if an address is
/// dialed that is not a host and a port.
pub fn topology(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else { return };
    let url =
        if kind % 4 == 0 { "redis-sentinel://s:1,t:1/primary" } else { "redis-cluster://a:1,b:1" };
    let data = Mutex::new((data.to_vec(), 0));
    let world = World::new(move |_, _| {
        let mut data = data.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rest = Unstructured::new(&data.0[data.1..]);
        let answer = answer(&mut rest).unwrap_or_else(|_| Answer::Line("ERR".to_owned()));
        data.1 = data.0.len() - rest.len();
        answer
    });
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build();
    let runtime = runtime.expect("a runtime needs nothing that could be missing");
    runtime.block_on(async {
        let connecting = timeout(LIMIT, world.connect(url)).await.expect("connecting ends");
        let Ok(transport) = connecting else { return };
        let (keys, args) = ([Bytes::from_static(b"k")], []);
        for _ in 0..CALLS {
            let script = ScriptName::Source("return {1}");
            let call = transport.call(ScriptCall::new(script, &keys, &args));
            let _ = timeout(LIMIT, call).await.expect("a call ends");
        }
    });
    let sent = world.sent();
    let calls = sent.iter().filter(|sent| sent.command.starts_with("EVAL")).count();
    assert!(calls <= CALLS * MOST_SENT, "{calls} calls were sent");
    for sent in &sent {
        let (host, port) = sent.server.rsplit_once(':').expect("a host and a port");
        assert!(!host.is_empty() && port.parse::<u16>().is_ok_and(|port| port != 0), "{host}");
    }
}

fn answer(data: &mut Unstructured<'_>) -> Result<Answer> {
    Ok(match data.arbitrary::<u8>()? % 12 {
        0 => Answer::Never,
        1 => Answer::After(Duration::from_millis(data.arbitrary::<u16>()?.into()), value(data, 3)?),
        2 => Answer::Line(text(data)?),
        3 => Answer::Line(format!("MOVED {} {}", data.arbitrary::<u16>()?, text(data)?)),
        4 => Answer::Line(format!("MOVED 7629 {}:{}", name(data)?, data.arbitrary::<u8>()?)),
        5 => Answer::Value(slots(data)?),
        6 => Answer::Value(Value::Bytes(
            format!("cluster_state:ok\r\ncluster_current_epoch:{}\r\n", data.arbitrary::<u8>()?)
                .into(),
        )),
        7 => {
            let (host, port) = (name(data)?, data.arbitrary::<u8>()?.to_string());
            let epoch = data.arbitrary::<u8>()?.to_string();
            let fields = ["ip", &host, "port", &port, "config-epoch", &epoch];
            Answer::Value(Value::Array(fields.map(|it| Value::Bytes(it.to_owned().into())).into()))
        }
        8 => Answer::Value(Value::Array(vec![Value::Bytes("master".into())])),
        _ => Answer::Value(value(data, 3)?),
    })
}

/// Returns a mostly valid reply to `CLUSTER SLOTS`.
fn slots(data: &mut Unstructured<'_>) -> Result<Value> {
    let count = data.arbitrary::<u8>()? % 4;
    let range = |data: &mut Unstructured<'_>| {
        let [first, last] = [data.arbitrary::<u16>()?, data.arbitrary::<u16>()?];
        let port = Value::Int(data.arbitrary::<u8>()?.into());
        let mut node = vec![Value::Bytes(name(data)?.into()), port];
        if data.arbitrary()? {
            let pairs = [Value::Bytes("hostname".into()), Value::Bytes(name(data)?.into())];
            node.extend([Value::Bytes("id".into()), Value::Array(pairs.into())]);
        }
        let slots = [Value::Int(i64::from(first % 64)), Value::Int(i64::from(last))];
        Ok(Value::Array(slots.into_iter().chain([Value::Array(node)]).collect()))
    };
    Ok(Value::Array((0..count).map(|_| range(data)).collect::<Result<_>>()?))
}

/// Returns one of a few names, so that servers name each other.
fn name(data: &mut Unstructured<'_>) -> Result<String> {
    const NAMES: [&str; 7] = ["a", "b", "c.example", "::1", "?", "", "x/y"];
    let index = usize::from(data.arbitrary::<u8>()?);
    Ok((*NAMES.get(index % 8).unwrap_or(&"user:secret@d")).to_owned())
}

fn value(data: &mut Unstructured<'_>, depth: usize) -> Result<Value> {
    Ok(match data.arbitrary::<u8>()? % 5 {
        0 => Value::Nil,
        1 => Value::Int(data.arbitrary()?),
        2 => Value::Bytes(text(data)?.into()),
        _ if depth == 0 => Value::Array(Vec::new()),
        _ => {
            let count = data.arbitrary::<u8>()? % 6;
            Value::Array((0..count).map(|_| value(data, depth - 1)).collect::<Result<_>>()?)
        }
    })
}

fn text(data: &mut Unstructured<'_>) -> Result<String> {
    let length = usize::from(data.arbitrary::<u8>()? % 32).min(data.len());
    Ok(String::from_utf8_lossy(data.bytes(length)?).into_owned())
}
