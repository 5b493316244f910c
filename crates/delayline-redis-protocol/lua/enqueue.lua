-- State::enqueue. ARGV: now, runs, the ids, then for each message
--   if it expires: expiry instant 7 | its record from the digest on, without expires_at; after
--   the lengths of a LARGE one its content.
-- Messages that follow each other and are scheduled alike are a run:
--   length 2 | flags 1 (1: reuse a finished id, 2: they expire) | level 1 | due instant 7.
-- Results: the due instant of a created message; minus the status of a duplicate; minus 10 minus
-- the status of a conflict.

--@include prelude.lua
--@include writing.lua
--@include bell.lua
--@include scheduling.lua
--@include finished.lua

local REUSES, EXPIRING, RUN_BYTES = 1, 2, 11
local count = (#ARGV - 2) / 2
local records = redis.call('HMGET', key.records, unpack(ARGV, 3, 2 + count))
local finished = finished_of(3, 2 + count)

local pack, char = struct.pack, string.char
local enqueued_at = pack('>I6', now)
local created, new_records, new_due, new_contents, reused = 0, {}, {}, {}, {}

local results, first_due, last = {0, now, 0}, NEVER, 0
-- All but the last byte of a sequence number is mostly that of the one before.
local sequence, high = control.sequence, nil
for run = 1, #ARGV[2], RUN_BYTES do
  local length, flags, level = struct.unpack('>I2I1I1', ARGV[2], run)
  local due = instant(ARGV[2], run + 4)
  local score, expires = nil, flags >= EXPIRING
  local first = last + 1
  last = last + length
  for i = first, last do
    local id, item, known_digest, status = ARGV[2 + i], ARGV[2 + count + i], nil, nil
    if records[i] then
      --@include records.lua
      local record, details = records[i], redis.call('HGET', key.details, id)
      local phase = details and sub(details, 27, 34) == sub(record, 1, 8) and byte(details)
        or WAITING_PHASE
      known_digest, status = digest_of(record), READY
      if phase == DEAD_PHASE then
        status = DEAD
      elseif phase ~= WAITING_PHASE then
        status = LEASED
      elseif tonumber(redis.call('ZSCORE', key.due, member_of(record, id)) or 0) % LEVEL > now then
        status = SCHEDULED
      end
    elseif finished[i] then
      if flags % 2 == REUSES then
        reused[#reused + 1] = id
      else
        known_digest, status = sub(finished[i], 2, 9), byte(finished[i])
      end
    end
    if status then
      local digest = expires and sub(item, 8, 15) or sub(item, 1, 8)
      results[3 + i] = known_digest == digest and -status or -10 - status
    else
      sequence, created = sequence + 1, created + 1
      local low = char(sequence % 256)
      if low == '\0' or not high then
        high = sub(pack('>I8', sequence), 1, 7)
      end
      score = score or due_score(level, due)
      new_due[2 * created - 1], new_due[2 * created] = score, high .. low .. id
      new_records[2 * created - 1] = id
      if not expires and byte(item, 9) < LARGE then
        new_records[2 * created] = high .. low .. enqueued_at .. item
      else
        --@include unusual_record.lua
      end
      if due < first_due then
        first_due = due
      end
      results[3 + i] = due
    end
  end
end

if created > 0 then
  control.sequence = sequence
  local ring = rings(first_due)
  if #new_contents > 0 then
    redis.call('HLEN', key.contents)
    --@ask HSET contents
    control.uses = bit.bor(control.uses, USES_CONTENTS)
  end
  if #reused > 0 then
    redis.call('HLEN', key.finished_new)
    redis.call('HLEN', key.finished_old)
    --@ask HDEL finished_new, HDEL finished_old
  end
  --@ask HSET records, SET control
  -- First of all, so that it needs no look at the key; `records` was read. An entry without a
  -- record, left by a file that was torn here, does not keep its message from being sent again.
  redis.call('ZADD', key.due, unpack(new_due))
  redis.call('HSET', key.records, unpack(new_records))
  if #new_contents > 0 then
    redis.call('HSET', key.contents, unpack(new_contents))
  end
  if #reused > 0 then
    redis.call('HDEL', key.finished_new, unpack(reused))
    redis.call('HDEL', key.finished_old, unpack(reused))
  end
  if ring then
    redis.call('LPUSH', key.bell, '1')
  end
  commit(true)
end
results[3] = control.revision
return results
