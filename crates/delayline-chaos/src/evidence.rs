//! What the text of a transaction tells about the operation that wrote it.

use delayline_core::{
    Applied, Enqueued, Extended, MessageId, Op, Outcome, Priority, Redriven, Reply, Rescheduled,
    Settled, Status,
};

/// Whether an operation can have written this: it writes about a message that it names. One that
/// moves a message, or a deadline, to where it is already writes nothing about it.
pub(crate) fn mentions(text: &[u8], op: &Op) -> bool {
    let any =
        |mut ids: std::slice::Iter<'_, MessageId>| ids.any(|id| contains(text, id.as_bytes()));
    match op {
        Op::Enqueue(items) => items.iter().any(|item| contains(text, item.id.as_bytes())),
        Op::Settle(items) => items.iter().any(|item| contains(text, item.id.as_bytes())),
        Op::Redrive(redrive) => any(redrive.ids.iter()),
        Op::Cancel(ids) | Op::Purge(ids) => any(ids.iter()),
        _ => true,
    }
}

/// Whether a text shows what an operation must have written: its claim id, and instants that follow
/// from when it was executed.
pub(crate) fn wrote(text: &[u8], op: &Op, applied: &Applied) -> bool {
    let at = applied.at;
    if death(text).is_some_and(|since| since != at.as_ms().to_string().as_bytes()) {
        return false;
    }
    let instant = match (op, &applied.reply) {
        (Op::Claim(claim), Reply::Claim(claimed)) if !claimed.deliveries.is_empty() => {
            if !contains(text, claim.claim_id.as_bytes()) {
                return false;
            }
            Some(at.after(claim.lease))
        }
        (_, Reply::Enqueue(items)) => items.iter().find_map(|item| match item {
            Enqueued::Created { due } => Some(*due),
            _ => None,
        }),
        (_, Reply::Extend(items)) => items.iter().find_map(|item| match item {
            Extended::Done { deadline, .. } => Some(*deadline),
            _ => None,
        }),
        (_, Reply::Reschedule(items)) => items.iter().find_map(|item| match item {
            Rescheduled::Done { due } => Some(*due),
            _ => None,
        }),
        (_, Reply::Redrive(items)) => items.iter().find_map(|item| match item {
            Redriven::Done { due } => Some(*due),
            _ => None,
        }),
        (Op::Settle(settlements), Reply::Settle(items)) => {
            settlements.iter().zip(items).find_map(|(settlement, item)| match settlement.outcome {
                Outcome::Retry { delay, .. } | Outcome::Snooze { delay }
                    if *item == (Settled::Done { status: Status::Scheduled }) =>
                {
                    Some(at.after(delay))
                }
                _ => None,
            })
        }
        _ => None,
    };
    // The score in an index: the instant, with the priority in front of it.
    instant.is_none_or(|instant| {
        let score = |level: u64| (level * (1 << 48) + instant.as_ms()).to_string();
        Priority::ALL
            .iter()
            .any(|priority| contains(text, score(u64::from(priority.level())).as_bytes()))
    })
}

/// The instant that a text has for messages that die: that of the operation.
fn death(text: &[u8]) -> Option<&[u8]> {
    const ADD: &[u8] = b"ZADD\r\n";
    let line = |text: &[u8]| text.windows(2).position(|pair| pair == b"\r\n");
    let adds = text.windows(ADD.len()).enumerate().filter(|(_, window)| *window == ADD);
    adds.map(|(place, _)| &text[place + ADD.len()..]).find_map(|rest| {
        // The lengths and the words that follow: the key, and the first score.
        let mut words = Vec::new();
        let mut rest = rest;
        while words.len() < 4 {
            let end = line(rest)?;
            words.push(&rest[..end]);
            rest = &rest[end + 2..];
        }
        words[1].ends_with(b":dead").then_some(words[3])
    })
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}
