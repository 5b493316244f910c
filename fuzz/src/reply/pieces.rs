//! Values from bytes: one byte chooses the kind, so that a small change of the bytes is a small
//! change of the value. Some kinds are nearly what a script would answer, or the fuzzer would
//! hardly ever get past the first checks.

use arbitrary::{Result, Unstructured};
use bytes::{BufMut, Bytes};
use delayline_redis_protocol::Value;
use delayline_redis_protocol::layout::codes::form;
use delayline_redis_protocol::layout::{Kind, delivery, details, record};

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
    let mut stored = Vec::new();
    record::SEQUENCE.put(&mut stored, data.arbitrary::<u8>()?.into());
    record::ENQUEUED_AT.put(&mut stored, now());
    record::DIGEST.put(&mut stored, 0);
    let form: u8 = data.arbitrary()?;
    record::FORM.put(&mut stored, form.into());
    // The bits in the order of their fields.
    if form & form::GROUPED != 0 {
        record::DUE.put(&mut stored, now());
        record::LANE.put(&mut stored, 7);
        record::GROUP_LENGTH.put(&mut stored, data.arbitrary::<u8>()?.into());
        stored.extend(bytes(data)?);
    }
    if form & form::LIMITED != 0 {
        record::MAX_FAILURES.put(&mut stored, 20);
        record::MAX_CRASHES.put(&mut stored, 5);
    }
    if form & form::EXPIRES != 0 {
        record::EXPIRES_AT.put(&mut stored, now());
    }
    if form & form::HEADED != 0 {
        record::HEADERS_LENGTH.put(&mut stored, data.arbitrary::<u8>()?.into());
    }
    stored.extend(bytes(data)?);
    Ok(stored.into())
}

/// The extra fields of a message that is not leased for the first time: a deadline and details.
fn delivered_again(data: &mut Unstructured<'_>) -> Result<Bytes> {
    let mut lease = Vec::new();
    let deadline = now().saturating_add_signed(data.arbitrary::<i8>()?.into());
    delivery::DEADLINE.put(&mut lease, deadline);
    lease.extend(details(data)?);
    Ok(lease.into())
}

/// Details: what does not vary, then bytes that are error texts and attempts if the fuzzer makes
/// them so.
fn details(data: &mut Unstructured<'_>) -> Result<Bytes> {
    let mut stored = Vec::new();
    let fields = details::STRUCTURE.fields.iter();
    for field in fields.filter(|field| field.condition.is_empty()) {
        match field.kind {
            Kind::Rest => {}
            Kind::Bytes(count) => stored.put_bytes(7, count),
            _ => {
                let number = match *field {
                    details::STATE | details::EPOCH | details::REASON => {
                        data.arbitrary::<u8>()?.into()
                    }
                    details::FIRST_ERROR_LENGTH
                    | details::LAST_ERROR_LENGTH
                    | details::ATTEMPTS
                    | details::SAVED_LENGTH => data.arbitrary::<u8>()?.into(),
                    details::DUE => now(),
                    details::FAILURES => 1,
                    _ => 0,
                };
                field.put(&mut stored, number);
            }
        }
    }
    stored.extend(bytes(data)?);
    Ok(stored.into())
}

fn now() -> u64 {
    NOW.unsigned_abs()
}
