-- How every script ends that changes messages: look_at_minute, ask, begin_writes, write, commit.
--
-- What is to be written stands in lists, flat as the commands take them. A script declares those
-- that it needs:
--   new_finished                    id, value     remembered as finished
--   new_details, new_records, new_contents, new_updates   id, value
--   carried                         id, details   of messages that take the place of others
--   replaced_contents               id            large contents that go, whose messages stay
--   revived                         id, value     records with another due time, or without expiry
--   new_places                      score, member places that messages go to
--   removed, ended                  member        messages that leave the index; `ended` by a lease
--   reused                          id            forgotten as finished
--   gone                            id            messages that are no more
--   journaled                       bytes         the claim that is remembered
--   counted                         counter to times   what `totals` counts
--   new_turns                       score, lane   lanes that join the ring unless they are in it
--   served                          score, lane   lanes that go to the end of the ring
--   old_turns                       lane          lanes that leave the ring
--   stalled                         score, lane   lanes that wait for a slot
--   new_slots                       lane, member  messages that hold a slot of their group
--   old_slots                       member        messages that hold it no longer
--   ring                            true          the bell rings

--@include point.lua
--@include minute.lua

-- Fails before the first write if one of them could fail. `totals` are written first, except by a
-- relay.
--@inline
local function ask()
  --@ask SET control
  --@with new_finished
  if #new_finished > 0 then
    count_finished()
  end
  --@with gone
  if #gone > 0 then
    --@look details
    --@ask HDEL records, HDEL details
    if bit.band(control.uses, USES_CONTENTS) ~= 0 then
      --@look contents
      --@ask HDEL contents
    end
    if bit.band(control.uses, USES_UPDATES) ~= 0 then
      --@look updates
      --@ask HDEL updates
    end
  end
  --@with revived
  if #revived > 0 then
    --@ask HSET records
  end
  --@with new_details
  if #new_details > 0 then
    --@look details
    --@ask HSET details
  end
  --@with new_places
  if #new_places > 0 then
    --@look index
    --@ask ZADD index
  end
  --@with new_records
  if #new_records > 0 then
    --@look records
    --@ask HSET records
  end
  --@with new_contents
  if #new_contents > 0 then
    --@look contents
    --@ask HSET contents
  end
  --@with carried
  if #carried > 0 then
    --@look details
    --@ask HSET details
  end
  --@with new_updates
  if #new_updates > 0 then
    --@look updates
    --@ask HSET updates
  end
  --@with replaced_contents
  if #replaced_contents > 0 then
    --@look contents
    --@ask HDEL contents
  end
  --@with reused
  if #reused > 0 then
    --@look finished_new
    --@look finished_old
    --@ask HDEL finished_new, HDEL finished_old
  end
  --@with removed
  if #removed > 0 then
    --@look index
    --@ask ZREM index
  end
  --@with ended
  if #ended > 0 then
    --@look index
    --@ask ZREM index, HGET records
  end
  --@with new_turns
  if #new_turns > 0 then
    --@ask ZADD turns, !ZADD index
  end
  --@with served
  if #served > 0 then
    --@ask ZADD turns
  end
  --@with old_turns
  if #old_turns > 0 then
    --@ask ZREM turns
  end
  --@with stalled
  if #stalled > 0 then
    --@ask ZADD turns
  end
  --@with new_slots
  if #new_slots > 0 then
    --@ask ZADD slots
  end
  --@with old_slots
  if #old_slots > 0 then
    --@ask ZREM slots
  end
  --@with journaled
  if journaled then
    count_journal()
  end
  --@with elements
  if counted then
    --@look totals
    --@ask BITFIELD totals
  end
  --@with ring
  if ring then
    --@ask LPUSH bell
  end
end

-- The first write of a script that must also work at maxmemory: it changes nothing (no field has
-- an empty name), it is allowed there, and after it Redis allows the script every other write. It
-- fails if the key holds something else.
--@inline
local function begin_writes()
  --@first HDEL records
  redis.call('HDEL', key.records, '')
end

-- For scripts that enqueue. Messages of a level, contents and updates are looked for only if the
-- control record says that there are some: so the first is announced before it is there.
--@inline
local function keep_uses()
  if control.stored and control.uses ~= control.known_uses then
    --@ask !ZADD index
    redis.call('SET', key.control, sub(control.stored, 1, CONTROL_USES_FROM - 1)
      .. struct.pack(U32, control.uses) .. sub(control.stored, CONTROL_FINISHED_SINCE_FROM))
  end
end

-- State::insert and State::remove, for all messages at once. Wherever a script is stopped, each
-- message is somewhere: one ZADD moves it. Its details are written before, and all of it is removed
-- after. The record of a new message comes after its entry and its content, so that a torn send can
-- be sent again. A message that takes the place of another gets its entry, then its record, then
-- the details that it keeps, and last the other's entry goes: an entry without a record is removed
-- by the next operation that meets it. A lane has its turn before it has messages, and until it has
-- none; it waits for a slot only once another message holds it, and no longer than that: so a torn
-- operation may let a group have one message too many, but none stays for ever.
--@inline
local function write()
  --@with counted
  if counted then
    add_to_totals()
  end
  remember_finished()
  --@with revived
  if #revived > 0 then
    redis.call('HSET', key.records, unpack(revived))
  end
  --@with new_details
  if #new_details > 0 then
    redis.call('HSET', key.details, unpack(new_details))
  end
  --@with new_turns
  if #new_turns > 0 then
    redis.call('ZADD', key.turns, 'NX', unpack(new_turns))
  end
  --@with served
  if #served > 0 then
    redis.call('ZADD', key.turns, unpack(served))
  end
  --@with old_slots
  if #old_slots > 0 then
    redis.call('ZREM', key.slots, unpack(old_slots))
  end
  --@with new_places
  if #new_places > 0 then
    redis.call('ZADD', key.index, unpack(new_places))
  end
  --@with new_slots
  if #new_slots > 0 then
    redis.call('ZADD', key.slots, unpack(new_slots))
  end
  --@with stalled
  if #stalled > 0 then
    redis.call('ZADD', key.turns, unpack(stalled))
  end
  --@with new_contents
  if #new_contents > 0 then
    redis.call('HSET', key.contents, unpack(new_contents))
  end
  --@with new_records
  if #new_records > 0 then
    redis.call('HSET', key.records, unpack(new_records))
  end
  --@with carried
  if #carried > 0 then
    redis.call('HSET', key.details, unpack(carried))
  end
  --@with new_updates
  if #new_updates > 0 then
    redis.call('HSET', key.updates, unpack(new_updates))
  end
  --@with replaced_contents
  if #replaced_contents > 0 then
    redis.call('HDEL', key.contents, unpack(replaced_contents))
  end
  --@with reused
  if #reused > 0 then
    redis.call('HDEL', key.finished_new, unpack(reused))
    redis.call('HDEL', key.finished_old, unpack(reused))
  end
  --@with removed
  if #removed > 0 then
    redis.call('ZREM', key.index, unpack(removed))
  end
  remove_gone()
  --@with old_turns
  if #old_turns > 0 then
    redis.call('ZREM', key.turns, unpack(old_turns))
  end
  --@with journaled
  if journaled then
    rotate_journal()
    redis.call('HSET', key.journal_new, consumer, journaled)
    if journal_count == 0 then
      redis.call('PEXPIRE', key.journal_new, 2 * JOURNAL_RETENTION)
    end
  end
  --@with snapshot
  if snapshot then
    store_snapshot()
  end
  --@with ring
  if ring then
    redis.call('LPUSH', key.bell, '1')
  end
end

-- For write: the messages that have ended are remembered.
--@inline
local function remember_finished()
  --@with new_finished
  if #new_finished > 0 then
    rotate_finished()
    redis.call('HSET', key.finished_new, unpack(new_finished))
    if finished_count == 0 then
      -- Only to give memory back when the queue falls idle: what counts is `finished_since`.
      redis.call('PEXPIRE', key.finished_new, 2 * FINISHED_RETENTION)
    end
  end
end

-- For write: they leave the index, and all of them is removed.
--@inline
local function remove_gone()
  --@with ended
  if #ended > 0 and redis.call('ZREM', key.index, unpack(ended)) < #ended then
    spare_newer()
  end
  --@with gone
  if #gone > 0 then
    -- Records first: a later claim that knew nothing of this, if it was torn, may have given the
    -- message a place again. An entry without a record goes by itself; a record without its content
    -- would be a dead letter. Details last: an audit looks through them, and removes with them what
    -- is left.
    redis.call('HDEL', key.records, unpack(gone))
    if bit.band(control.uses, USES_CONTENTS) ~= 0 then
      redis.call('HDEL', key.contents, unpack(gone))
    end
    if bit.band(control.uses, USES_UPDATES) ~= 0 then
      redis.call('HDEL', key.updates, unpack(gone))
    end
    redis.call('HDEL', key.details, unpack(gone))
  end
end

-- State::commit. The last write.
--@inline
local function commit()
  control.revision = control.revision + 1
  keep_control()
end

--@inline
local function keep_control()
  local c = control
  redis.call('SET', key.control, struct.pack(CONTROL_FORMAT, SCHEMA_VERSION, c.revision, c.sequence,
    c.acked, c.cancelled, c.purged, c.relayed, c.expired, c.replaced, c.paused, c.uses,
    c.finished_since, c.journal_since, c.armed, c.armed_until, c.minute) .. c.limits)
end
