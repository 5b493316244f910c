//! What a queue knows of messages.

use std::collections::{BTreeMap, HashSet, VecDeque};

use delayline_core::limits::{MAX_BATCH, MAX_LOOK_UP};
use delayline_core::{Completion, Found, Message, MessageId, Op, Reply};
use futures_util::future::try_join_all;

use crate::Error;
use crate::client::Client;

/// Reads the live and readable ones of these messages.
pub(crate) async fn look_up(
    client: &Client,
    ids: Vec<MessageId>,
) -> Result<Vec<Box<Message>>, Error> {
    let gets = ids.chunks(MAX_LOOK_UP).map(|ids| Op::Get(ids.to_vec())).collect::<Vec<_>>();
    let replies = try_join_all(gets.iter().map(|op| client.apply(op))).await?;
    let mut messages = Vec::new();
    for applied in replies {
        let Reply::Get(found) = applied.reply else { return Err(Error::unexpected_reply()) };
        messages.extend(found.into_iter().filter_map(|it| match it {
            Found::Live(message) => Some(message),
            _ => None,
        }));
    }
    Ok(messages)
}

/// Queries how far messages have come, in order.
pub(crate) async fn completions(
    client: &Client,
    ids: &[MessageId],
) -> Result<Vec<Completion>, Error> {
    let unique: HashSet<_> = ids.iter().cloned().collect();
    let mut waiting: VecDeque<_> = unique.into_iter().collect();
    let mut known = BTreeMap::new();
    while !waiting.is_empty() {
        let batch: Vec<_> = waiting.iter().take(MAX_BATCH).cloned().collect();
        let Reply::Progress(found) = client.apply(&Op::Progress(batch)).await?.reply else {
            return Err(Error::unexpected_reply());
        };
        // With large results, the reply is shorter.
        if found.is_empty() {
            return Err(Error::unexpected_reply());
        }
        known.extend(waiting.drain(..found.len()).zip(found));
    }
    Ok(ids.iter().map(|id| known.get(id).cloned().unwrap_or(Completion::Unknown)).collect())
}
