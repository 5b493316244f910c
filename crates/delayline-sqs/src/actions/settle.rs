//! Deleting messages, and changing how long they are invisible.

use std::sync::Arc;

use delayline::Timestamp;
use delayline::backend::{Extend, Extended, Millis, Op, Outcome, Reply, Settled, Settlement};
use delayline::limits::MAX_LEASE_MS;
use delayline::message::Status;
use futures_util::future::join_all;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::call::{Call, Number, batch_answer, entries, read, to_the_end};
use crate::error::{Code, Error};
use crate::leases::{ack, reclaim};
use crate::queues::Open;
use crate::receipt::Receipt;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Named {
    receipt_handle: Option<String>,
    visibility_timeout: Option<Number>,
}

impl Named {
    fn receipt(&self, open: &Open) -> Result<Receipt, Error> {
        let handle = self.receipt_handle.as_deref();
        Receipt::read(&open.name, handle.ok_or_else(|| Error::missing("ReceiptHandle"))?)
    }

    fn visibility_s(&self, call: &Call) -> Result<u64, Error> {
        let most =
            if call.shared.queues.is_strict { STRICT_VISIBILITY_S } else { MAX_LEASE_MS / 1_000 };
        let number = self.visibility_timeout.ok_or_else(|| Error::missing("VisibilityTimeout"))?;
        number.within("VisibilityTimeout", 0, most)
    }
}

pub(super) async fn delete(call: &Call, input: Value) -> Result<Value, Error> {
    let (open, _) = call.queue(&input).await?;
    let receipt = read::<Named>(input)?.receipt(&open)?;
    to_the_end(async move { deleted(&open, receipt).await }).await
}

pub(super) async fn delete_batch(call: &Call, input: Value) -> Result<Value, Error> {
    let (open, _) = call.queue(&input).await?;
    let mut results = Vec::new();
    let mut receipts: Vec<(String, Receipt)> = Vec::new();
    for (id, entry) in entries("DeleteMessage", input)? {
        match read::<Named>(entry).and_then(|named| named.receipt(&open)) {
            Ok(receipt) => receipts.push((id, receipt)),
            Err(error) => results.push((id, Err(error))),
        }
    }
    let done = to_the_end(async move { Ok(delete_all(&open, receipts).await) }).await?;
    results.extend(done.into_iter().map(|(id, result)| (id, result.map_err(in_batch))));
    Ok(batch_answer(results))
}

/// The error of an entry, for which SQS has another code than for a single deletion.
fn in_batch(error: Error) -> Error {
    match error.code() {
        Code::InvalidParameterValue => {
            Error::new(Code::ReceiptHandleIsInvalid, "The receipt handle has expired")
        }
        _ => error,
    }
}

/// Deletes messages, most of them in one operation.
async fn delete_all(
    open: &Open,
    receipts: Vec<(String, Receipt)>,
) -> Vec<(String, Result<Value, Error>)> {
    let (mut first, mut again) = (Vec::new(), Vec::new());
    for (id, receipt) in receipts {
        // An operation may name a message only once.
        let is_known = first.iter().any(|(_, it): &(String, Receipt)| it.id == receipt.id);
        if is_known { &mut again } else { &mut first }.push((id, receipt));
    }
    let mut results = Vec::new();
    if !first.is_empty() {
        let (ids, receipts): (Vec<_>, Vec<_>) = first.into_iter().unzip();
        match ack(open, &receipts).await {
            Ok(settled) => {
                for ((id, receipt), settled) in ids.into_iter().zip(receipts).zip(settled) {
                    results.push((id, remains(open, &receipt, settled).await));
                }
            }
            Err(error) => {
                results.extend(ids.into_iter().map(|id| (id, Err(error.clone()))));
            }
        }
    }
    for (id, receipt) in again {
        results.push((id, deleted(open, receipt).await));
    }
    results
}

async fn deleted(open: &Open, receipt: Receipt) -> Result<Value, Error> {
    let settled = ack(open, std::slice::from_ref(&receipt)).await?;
    let settled = settled.first().copied().ok_or_else(Error::internal)?;
    remains(open, &receipt, settled).await
}

/// Deletes a message whose lease has ended, unless it is in flight again. In a FIFO queue, that is
/// an error.
async fn remains(open: &Open, receipt: &Receipt, settled: Settled) -> Result<Value, Error> {
    let is_waiting = matches!(settled, Settled::Stale | Settled::AlreadyDone { ended: None });
    if is_waiting && open.is_fifo() {
        return Err(has_expired(open, receipt));
    }
    if is_waiting {
        // The lease that followed may have expired, too.
        reclaim(open).await?;
    }
    if is_waiting
        && let Some(info) = open.queue.get(receipt.id.clone()).await?.info()
        && info.sequence == receipt.sequence
        && matches!(info.state.status(), Status::Scheduled | Status::Ready)
    {
        open.queue.cancel(receipt.id.clone()).await?;
    }
    Ok(json!({}))
}

/// The error of a FIFO queue.
fn has_expired(open: &Open, receipt: &Receipt) -> Error {
    let handle = receipt.write(&open.name);
    Error::value(format!(
        "Value {handle} for parameter ReceiptHandle is invalid. Reason: The receipt handle has \
         expired."
    ))
}

pub(super) async fn change(call: &Call, input: Value) -> Result<Value, Error> {
    let (open, _) = call.queue(&input).await?;
    let named: Named = read(input)?;
    let (receipt, visibility_s) = (named.receipt(&open)?, named.visibility_s(call)?);
    let now = reclaimed(call, &open).await?;
    to_the_end(async move { changed(&open, receipt, visibility_s, now).await }).await
}

pub(super) async fn change_batch(call: &Call, input: Value) -> Result<Value, Error> {
    let (open, _) = call.queue(&input).await?;
    let entries = entries("ChangeMessageVisibility", input)?;
    let now = reclaimed(call, &open).await?;
    let changes = entries.into_iter().map(|(id, entry)| {
        let asked = read::<Named>(entry)
            .and_then(|named| Ok((named.receipt(&open)?, named.visibility_s(call)?)));
        let open = Arc::clone(&open);
        async move {
            let result = match asked {
                Ok((receipt, visibility_s)) => {
                    let changed = async move { changed(&open, receipt, visibility_s, now).await };
                    to_the_end(changed).await
                }
                Err(error) => Err(error),
            };
            (id, result)
        }
    });
    Ok(batch_answer(join_all(changes).await))
}

/// Reclaims expired leases, which stay valid until then. Returns the time if visibility timeouts
/// have the limit of SQS.
async fn reclaimed(call: &Call, open: &Open) -> Result<Option<Timestamp>, Error> {
    reclaim(open).await?;
    Ok(match call.shared.queues.is_strict {
        true => Some(open.queue.server_time().await?),
        false => None,
    })
}

/// Extends or shortens a lease; releases the message if the timeout is 0. As in SQS, an older
/// receipt changes the latest lease of a message of a standard queue, if this server has granted
/// it. `now` if the timeouts since a receive have a limit together; other servers do not know when
/// it was.
async fn changed(
    open: &Open,
    receipt: Receipt,
    visibility_s: u64,
    now: Option<Timestamp>,
) -> Result<Value, Error> {
    if let (Some(now), Some(received)) = (now, open.latest.received_at(&receipt))
        && visibility_s > 0
        && now.since(received).as_secs() + visibility_s > STRICT_VISIBILITY_S
    {
        return Err(Error::value(format!(
            "Value {visibility_s} for parameter VisibilityTimeout is invalid. Reason: Total \
             VisibilityTimeout for the message is beyond the limit [{STRICT_VISIBILITY_S} seconds]."
        )));
    }
    let result = change_lease(open, &receipt, visibility_s).await;
    let is_stale = result.as_ref().is_err_and(|it| it.code() == Code::MessageNotInflight);
    match open.latest.of(receipt.sequence, receipt.id.clone()) {
        Some(latest) if is_stale && !open.is_fifo() && latest != receipt => {
            change_lease(open, &latest, visibility_s).await
        }
        _ => result,
    }
}

async fn change_lease(open: &Open, receipt: &Receipt, visibility_s: u64) -> Result<Value, Error> {
    let (id, lease) = (receipt.id.clone(), receipt.lease);
    let op = match visibility_s {
        0 => Op::Settle(vec![Settlement::new(id, lease, Outcome::Release)]),
        _ => Op::Extend(Extend::new(vec![(id, lease)], Millis::new(visibility_s * 1_000)?)),
    };
    let is_missing = match open.queue.apply(&op).await?.reply {
        Reply::Settle(settled) => match settled.first() {
            Some(Settled::Done { .. } | Settled::AlreadyDone { ended: None }) => {
                return Ok(json!({}));
            }
            Some(Settled::Stale) => false,
            _ => true,
        },
        Reply::Extend(extended) => match extended.first() {
            Some(Extended::Done { deadline, .. }) => {
                open.latest.extend(receipt, *deadline);
                return Ok(json!({}));
            }
            Some(Extended::Stale) => false,
            _ => true,
        },
        _ => return Err(Error::internal()),
    };
    if is_missing {
        let handle = receipt.write(&open.name);
        let why = format!(
            "Value {handle} for parameter ReceiptHandle is invalid. Reason: Message does not exist \
             or is not available for visibility timeout change."
        );
        return Err(Error::value(why));
    }
    if open.is_fifo() {
        return Err(has_expired(open, receipt));
    }
    let why = "The message referred to isn't in flight.";
    Err(Error::new(Code::MessageNotInflight, why))
}

/// Longest time that a message is invisible after a receive, as in SQS.
const STRICT_VISIBILITY_S: u64 = 43_200;
