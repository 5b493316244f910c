-- State::enqueue. ARGV: now, then for each message its id and
--   flags 1 (1: reuse a finished id, 2: it expires) | level 1 | due instant 7
--   | if it expires: expiry instant 7 | its record from the digest on, without expires_at; after
--   the lengths of a LARGE one its content.
-- Results: the due instant of a created message; minus the status of a duplicate; minus 10 minus
-- the status of a conflict.

--@include prelude.lua
--@include bell.lua
--@include scheduling.lua
--@include records.lua
--@include finished.lua

local REUSES, EXPIRING = 1, 2
local count, ids = (#ARGV - 1) / 2, {}
for i = 1, count do
  ids[i] = ARGV[2 * i]
end
local records = redis.call('HMGET', key.records, unpack(ids))
local finished = finished_of(ids)

local function status_of(id, record)
  local details = redis.call('HGET', key.details, id)
  local phase = details and byte(details) or WAITING_PHASE
  if phase == DEAD_PHASE then
    return DEAD
  elseif phase ~= WAITING_PHASE then
    return LEASED
  end
  local score = tonumber(redis.call('ZSCORE', key.due, member_of(record, id)) or 0)
  return score % LEVEL > now and SCHEDULED or READY
end

-- The due instants by level and instant as they stand in the arguments, and the scores: the messages
-- of a batch are often due at the same time.
local due_instants, due_scores = {}, {}

local function place_of(item)
  local place = sub(item, 2, 9)
  local due, score = due_instants[place], due_scores[place]
  if not due then
    due = instant(item, 3)
    score = due_score(byte(item, 2), due)
    due_instants[place], due_scores[place] = due, score
  end
  return due, score
end

local pack = struct.pack
local enqueued_at = pack('>I6', now)
local created, new_records, new_due, new_contents, reused = 0, {}, {}, {}, {}

-- Notes the record of a message that expires or is large.
local function note_unusual(id, item, sequence, expires)
  local first, expires_at = 10, ''
  if expires then
    first, expires_at = 17, pack('>I6', instant(item, 10))
  end
  local form, last = byte(item, first + 8), first + 8
  if bit.band(form, LIMITED) ~= 0 then
    last = last + 4
  end
  local head, content = sequence .. enqueued_at .. sub(item, first, last) .. expires_at, last + 1
  if form >= LARGE then
    content = content + 6
    new_contents[#new_contents + 1] = id
    new_contents[#new_contents + 1] = sub(item, content)
    new_records[2 * created] = head .. sub(item, last + 1, content - 1)
  else
    new_records[2 * created] = head .. sub(item, content)
  end
end

local results, first_due = {0, now, 0}, NEVER
for i = 1, count do
  local id, item, known_digest, status = ids[i], ARGV[2 * i + 1], nil, nil
  local flags = byte(item)
  if records[i] then
    known_digest, status = digest_of(records[i]), status_of(id, records[i])
  elseif finished[i] then
    if flags % 2 == REUSES then
      reused[#reused + 1] = id
    else
      known_digest, status = sub(finished[i], 2, 9), byte(finished[i])
    end
  end
  if status then
    local first = flags >= EXPIRING and 17 or 10
    results[3 + i] = known_digest == sub(item, first, first + 7) and -status or -10 - status
  else
    local due, score = place_of(item)
    control.sequence = control.sequence + 1
    created = created + 1
    local sequence = pack('>I8', control.sequence)
    new_due[2 * created - 1], new_due[2 * created] = score, sequence .. id
    new_records[2 * created - 1] = id
    if flags < EXPIRING and byte(item, 18) < LARGE then
      new_records[2 * created] = sequence .. enqueued_at .. sub(item, 10)
    else
      note_unusual(id, item, sequence, flags >= EXPIRING)
    end
    if due < first_due then
      first_due = due
    end
    results[3 + i] = due
  end
end

if created > 0 then
  local ring = rings(first_due)
  if #new_contents > 0 then
    redis.call('HLEN', key.contents)
    control.uses = bit.bor(control.uses, USES_CONTENTS)
  end
  if #reused > 0 then
    redis.call('HLEN', key.finished_new)
    redis.call('HLEN', key.finished_old)
  end
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
