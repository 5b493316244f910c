//! Lists and audits over all shards, whose cursors carry the shard.

use delayline_core::{
    Applied, Check, Checked, Error, List, MessageInfo, MessageState, Op, Page, Position, Reply,
    Status, Timestamp,
};

use super::{How, Shards, place_of, unexpected};

/// A position in a shard, and the shard.
type Place = (Position, usize);

impl Shards {
    /// Messages are listed in the order of a plain queue, with equal positions in the order of the
    /// shards. Only ready messages with a group are listed shard by shard, after all others: their
    /// order is that of turns, which each shard takes alone.
    pub(super) async fn list(&self, how: How, list: &List) -> Result<Applied, Error> {
        let after = list.after.map(|after| self.split_cursor(after));
        let by_turns = |(position, _): &Place| {
            list.status == Status::Ready && position.index >= Position::LANES
        };
        let mut page = Page::default();
        let (mut at, mut revision) = (Timestamp::MIN, 0);
        let mut place = after.filter(by_turns);
        if place.is_none() {
            let parts = (0..self.shards.len()).map(|shard| {
                let part = List::new(list.status, list.limit);
                (shard, Op::List(part.after(after.map(|after| resumed(after, shard)))))
            });
            let parts = self.send_all(how, parts.collect()).await?;
            (at, revision) = (parts.at, parts.revision);
            let mut found: Vec<(Place, MessageInfo)> = Vec::new();
            // A page may end before its shard does, and nothing later is known of that shard.
            let mut end: Option<Place> = None;
            for (shard, applied) in parts.replies.into_iter().enumerate() {
                let Reply::List(part) = applied.reply else { return Err(unexpected()) };
                let keyed = part.messages.into_iter().filter_map(|info| {
                    let position = position_of(list.status, &info)?;
                    Some(((position, shard), info))
                });
                found.extend(keyed);
                let ends = part.next.map(|next| (next, shard)).filter(|place| !by_turns(place));
                end = end.into_iter().chain(ends).min();
            }
            found.sort_by_key(|(place, _)| *place);
            found.retain(|(place, _)| end.is_none_or(|end| *place <= end));
            if found.len() >= list.limit {
                found.truncate(list.limit);
                end = found.last().map(|(place, _)| *place);
            }
            page.messages.extend(found.into_iter().map(|(_, info)| info));
            page.next = end.map(|end| self.joined(end));
            let in_turns = end.is_none() && list.status == Status::Ready;
            place = in_turns.then_some((TURNS, 0));
        }
        while let Some((position, shard)) = place {
            let room = list.limit.saturating_sub(page.messages.len());
            let op = Op::List(List::new(list.status, room).after(position));
            let applied = self.send(shard, how, &op).await?;
            let Reply::List(part) = applied.reply else { return Err(unexpected()) };
            at = at.max(applied.at);
            revision = revision.max(applied.revision);
            page.messages.extend(part.messages);
            let next = part.next.map(|next| (next, shard));
            place = next.or_else(|| (shard + 1 < self.shards.len()).then_some((TURNS, shard + 1)));
            if page.messages.len() >= list.limit || next.is_some() {
                page.next = place.map(|place| self.joined(place));
                break;
            }
        }
        Ok(Applied::new(at, revision, Reply::List(page)))
    }

    /// Audits one shard after the other.
    pub(super) async fn check(
        &self,
        how: How,
        check: &Check,
        op: impl Fn(Check) -> Op,
    ) -> Result<Applied, Error> {
        let after = check.after.map(|after| self.split_cursor(after));
        let (position, shard) = after.map_or((None, 0), |(position, shard)| {
            (Some(position).filter(|position| *position != START), shard)
        });
        let mut applied =
            self.send(shard, how, &op(Check::new(check.limit).after(position))).await?;
        let (Reply::Check(Checked { next, .. }) | Reply::Repair(Checked { next, .. })) =
            &mut applied.reply
        else {
            return Err(unexpected());
        };
        let following = (shard + 1 < self.shards.len()).then_some((START, shard + 1));
        *next = next.map(|next| (next, shard)).or(following).map(|next| self.joined(next));
        Ok(applied)
    }

    /// The parts of a cursor.
    fn split_cursor(&self, cursor: Position) -> Place {
        let count = self.shards.len() as u64;
        let shard = usize::try_from(cursor.sequence % count).unwrap_or_default();
        (Position { sequence: cursor.sequence / count, ..cursor }, shard)
    }

    fn joined(&self, place: Place) -> Position {
        joined(self.shards.len(), place)
    }
}

/// The cursor of a place: its number is the sequence number times the number of shards, plus the
/// shard. So cursors are in the order of the list.
fn joined(shards: usize, (position, shard): Place) -> Position {
    let sequence = position.sequence.saturating_mul(shards as u64).saturating_add(shard as u64);
    Position { sequence, ..position }
}

/// The cursor of a message of a list, in a queue of this number of shards. `None` for a ready
/// message with a group.
pub(crate) fn cursor_of(shards: usize, status: Status, info: &MessageInfo) -> Option<Position> {
    let position = position_of(status, info)?;
    Some(joined(shards, (position, place_of(info.group.as_ref(), &info.id, shards))))
}

/// Where a shard continues after a place: a message there at the same position comes later if its
/// shard does.
fn resumed((position, of): Place, shard: usize) -> Position {
    if shard <= of {
        return position;
    }
    Position { sequence: position.sequence.saturating_sub(1), ..position }
}

/// The position of a message of a list. `None` for a ready message with a group.
pub(super) fn position_of(status: Status, info: &MessageInfo) -> Option<Position> {
    let level = || if info.group.is_some() { Position::GROUPED } else { info.priority.level() };
    let (index, instant) = match info.state {
        MessageState::Leased { deadline, .. } => (Position::LEASED, deadline),
        MessageState::Dead { since, .. } => (Position::DEAD, since),
        _ if status == Status::Ready && info.group.is_some() => return None,
        _ => (level(), info.due),
    };
    let of_groups = if info.group.is_some() { Position::OF_GROUPS } else { 0 };
    Some(Position { index, instant, sequence: info.sequence | of_groups })
}

/// Before everything else in a shard.
const START: Position = Position { index: 0, instant: Timestamp::MIN, sequence: 0 };
/// Before the ready messages with a group.
const TURNS: Position = Position { index: Position::LANES, instant: Timestamp::MIN, sequence: 0 };
