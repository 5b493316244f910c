-- How every script ends that changes messages: ask, begin_writes, write, commit.
--
-- What is to be written stands in lists, flat as the commands take them. A script declares those that it
-- needs:
--   new_finished                    id, value     remembered as finished
--   new_details, new_records, new_contents   id, value
--   revived                         id, value     records that lose their expiry
--   new_due, new_leased, new_dead   score, member places that messages go to
--   old_due, old_leased, old_dead   member        places that they leave
--   ended                           member        places in `leased` that settled messages leave
--   reused                          id            forgotten as finished
--   gone                            id            messages that are no more
--   journaled                       bytes         the claim that is remembered
--   ring                            true          the bell rings

-- Fails before the first write if one of them could fail.
--@inline
local function ask()
  --@ask SET control
  --@with new_finished
  if #new_finished > 0 then
    count_finished()
  end
  --@with gone
  if #gone > 0 then
    --@ask HDEL records, HDEL details
    if bit.band(control.uses, USES_CONTENTS) ~= 0 then
      --@look contents
      --@ask HDEL contents
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
  --@with new_due
  if #new_due > 0 then
    --@look due
    --@ask ZADD due
  end
  --@with new_leased
  if #new_leased > 0 then
    --@look leased
    --@ask ZADD leased
  end
  --@with new_dead
  if #new_dead > 0 then
    --@look dead
    --@ask ZADD dead
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
  --@with reused
  if #reused > 0 then
    --@look finished_new
    --@look finished_old
    --@ask HDEL finished_new, HDEL finished_old
  end
  --@with old_due
  if #old_due > 0 then
    --@look due
    --@ask ZREM due
  end
  --@with old_leased
  if #old_leased > 0 then
    --@look leased
    --@ask ZREM leased
  end
  --@with ended
  if #ended > 0 then
    --@look leased
    --@ask ZREM leased, HGET records
  end
  --@with old_dead
  if #old_dead > 0 then
    --@look dead
    --@ask ZREM dead
  end
  --@with journaled
  if journaled then
    count_journal()
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

-- State::insert and State::remove, for all messages at once. A message's new place is written before its
-- old one is cleared, so that wherever a script is stopped the message is somewhere.
--@inline
local function write()
  --@with new_finished
  if #new_finished > 0 then
    rotate_finished()
    redis.call('HSET', key.finished_new, unpack(new_finished))
    if finished_count == 0 then
      -- Only to give memory back when the queue falls idle: what counts is `finished_since`.
      redis.call('PEXPIRE', key.finished_new, 2 * FINISHED_RETENTION)
    end
  end
  --@with revived
  if #revived > 0 then
    redis.call('HSET', key.records, unpack(revived))
  end
  --@with new_details
  if #new_details > 0 then
    redis.call('HSET', key.details, unpack(new_details))
  end
  --@with new_due
  if #new_due > 0 then
    redis.call('ZADD', key.due, unpack(new_due))
  end
  --@with new_leased
  if #new_leased > 0 then
    redis.call('ZADD', key.leased, unpack(new_leased))
  end
  --@with new_dead
  if #new_dead > 0 then
    redis.call('ZADD', key.dead, unpack(new_dead))
  end
  --@with new_records
  if #new_records > 0 then
    redis.call('HSET', key.records, unpack(new_records))
  end
  --@with new_contents
  if #new_contents > 0 then
    redis.call('HSET', key.contents, unpack(new_contents))
  end
  --@with reused
  if #reused > 0 then
    redis.call('HDEL', key.finished_new, unpack(reused))
    redis.call('HDEL', key.finished_old, unpack(reused))
  end
  --@with old_due
  if #old_due > 0 then
    redis.call('ZREM', key.due, unpack(old_due))
  end
  --@with old_leased
  if #old_leased > 0 then
    redis.call('ZREM', key.leased, unpack(old_leased))
  end
  --@with ended
  if #ended > 0 then
    if redis.call('ZREM', key.leased, unpack(ended)) < #ended and #gone > 0 then
      spare_newer()
    end
  end
  --@with old_dead
  if #old_dead > 0 then
    redis.call('ZREM', key.dead, unpack(old_dead))
  end
  --@with gone
  if #gone > 0 then
    -- Contents first: an audit finds the record of one that is gone, and looks through no contents.
    if bit.band(control.uses, USES_CONTENTS) ~= 0 then
      redis.call('HDEL', key.contents, unpack(gone))
    end
    redis.call('HDEL', key.records, unpack(gone))
    redis.call('HDEL', key.details, unpack(gone))
  end
  --@with journaled
  if journaled then
    rotate_journal()
    redis.call('HSET', key.journal_new, consumer, journaled)
    if journal_count == 0 then
      redis.call('PEXPIRE', key.journal_new, 2 * JOURNAL_RETENTION)
    end
  end
  --@with ring
  if ring then
    redis.call('LPUSH', key.bell, '1')
  end
end

-- State::commit. The last write, and the only one of the control record.
--@inline
local function commit()
  control.revision = control.revision + 1
  keep_control()
end

--@inline
local function keep_control()
  local c = control
  redis.call('SET', key.control, struct.pack(CONTROL_FORMAT, SCHEMA_VERSION, c.revision, c.sequence,
    c.acked, c.cancelled, c.purged, c.expired, c.paused, c.uses, c.finished_since,
    c.journal_since, c.armed, c.armed_until))
end
