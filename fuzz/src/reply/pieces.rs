//! Values from bytes: one byte chooses the kind, so that a small change of the bytes is a small
//! change of the value. Some kinds are nearly what a script would answer, or the fuzzer would
//! hardly ever get past the first checks.

use arbitrary::{Result, Unstructured};
use bytes::{BufMut, Bytes};
use delayline_redis_protocol::Value;

/// What the server's clock shows, in ms.
const NOW: i64 = 1_800_000_000_000;

/// Scripts answer with no arrays in arrays; a server might.
const DEEPEST: usize = 4;

/// A whole reply: an array that begins well, an array, or any value.
pub(super) fn reply(data: &mut Unstructured<'_>) -> Result<Value> {
    let mut values = match data.arbitrary::<u8>()? {
        0 => return value(data, DEEPEST),
        1 => Vec::new(),
        _ => vec![Value::Int(0), Value::Int(NOW), Value::Int(1)],
    };
    while !data.is_empty() {
        values.push(value(data, DEEPEST)?);
    }
    Ok(Value::Array(values))
}

fn value(data: &mut Unstructured<'_>, depth: usize) -> Result<Value> {
    Ok(match data.arbitrary::<u8>()? % 9 {
        0 => Value::Int(data.arbitrary::<i8>()?.into()),
        1 => Value::Int(NOW + i64::from(data.arbitrary::<i8>()?)),
        2 => Value::Int(data.arbitrary()?),
        3 => Value::Nil,
        4 => Value::Bytes(bytes(data)?.into()),
        5 => Value::Bytes(record(data)?),
        6 => Value::Bytes(details(data)?),
        8 => Value::Bytes(delivered_again(data)?),
        _ if depth == 0 => Value::Array(Vec::new()),
        _ => {
            let len = data.arbitrary::<u8>()? % 8;
            Value::Array((0..len).map(|_| value(data, depth - 1)).collect::<Result<_>>()?)
        }
    })
}

fn bytes(data: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let len = usize::from(data.arbitrary::<u8>()?).min(data.len());
    Ok(data.bytes(len)?.to_vec())
}

/// A record: its head, then bytes that are headers and a payload if the fuzzer makes them so.
fn record(data: &mut Unstructured<'_>) -> Result<Bytes> {
    let mut record = Vec::new();
    record.put_u64(data.arbitrary::<u8>()?.into());
    record.put_int(NOW, 6);
    record.put_u64(0);
    let form: u8 = data.arbitrary()?;
    record.put_u8(form);
    // The bits in the order of what they announce: limits, expiry, headers.
    if form & 4 != 0 {
        record.put_u16(20);
        record.put_u16(5);
    }
    if form & 8 != 0 {
        record.put_int(NOW, 6);
    }
    if form & 16 != 0 {
        record.put_u16(data.arbitrary::<u8>()?.into());
    }
    record.extend(bytes(data)?);
    Ok(record.into())
}

/// What is told of a message that is not leased for the first time: a deadline and details.
fn delivered_again(data: &mut Unstructured<'_>) -> Result<Bytes> {
    let mut lease = Vec::new();
    lease.put_int(NOW + i64::from(data.arbitrary::<i8>()?), 6);
    lease.extend(details(data)?);
    Ok(lease.into())
}

/// Details: what does not vary, then bytes that are error texts if the fuzzer makes them so.
fn details(data: &mut Unstructured<'_>) -> Result<Bytes> {
    let mut details = vec![data.arbitrary()?, 0];
    details.put_u64(data.arbitrary::<u8>()?.into());
    // The claim id; then sequence, digest, level and limits, which are not read.
    details.put_bytes(7, 16 + 8 + 8 + 1 + 2 + 2);
    details.put_int(NOW, 6);
    details.put_u16(1);
    details.put_u16(0);
    details.put_u8(data.arbitrary()?);
    details.put_u16(data.arbitrary::<u8>()?.into());
    details.extend(bytes(data)?);
    Ok(details.into())
}
