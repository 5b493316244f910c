-- State::enqueue. ARGV: now, the runs, the ids, then each message as a `new_message`, or as an
-- `expiring_message` if its run says so (layout.rs).
-- Results: the due instant of a created message; minus the status of a duplicate; ENQUEUE_CONFLICT minus
-- the status of a conflict.

--@include prelude.lua
--@include bell.lua
--@include scheduling.lua
--@include places.lua
--@include records.lua
--@include finished.lua
--@include over.lua
--@include write.lua

-- The record of a message that expires or is large. Sets new_records and new_contents.
--@inline
local function put_unusual_record()
  local digest, expires_at = NEW_MESSAGE_DIGEST_FROM, ''
  if expires then
    digest = EXPIRING_MESSAGE_DIGEST_FROM
    expires_at = pack(INSTANT, instant(item, EXPIRING_MESSAGE_EXPIRES_FROM))
  end
  local form, content = byte(item, digest + NEW_MESSAGE_FORM - 1), digest + NEW_MESSAGE_BYTES
  if bit.band(form, LIMITED) ~= 0 then
    content = content + LIMITS_BYTES
  end
  local record = high .. low .. enqueued_at .. sub(item, digest, content - 1) .. expires_at
  if form >= LARGE then
    local n = #new_contents
    new_contents[n + 1], new_contents[n + 2] = id, sub(item, content + LENGTHS_BYTES)
    record = record .. sub(item, content, content + LENGTHS_BYTES - 1)
  else
    record = record .. sub(item, content)
  end
  new_records[2 * created] = record
end

-- For a record of this id. Reads its place; sets known_digest and status if the message is live.
--@inline
local function judge_live()
  local record = records[i]
  local band, instant = place_of(member_of(record, id))
  if band or not is_over(record, past[i], past[i] and redis.call('HGET', key.details, id)) then
    known_digest, status = digest_of(record), READY
    if band == AT_DEAD then
      status = DEAD
    elseif band == AT_LEASED then
      status = LEASED
    elseif band and instant > now then
      status = SCHEDULED
    end
  end
end

-- READ
--@reads index, records, details
local count = (#ARGV - 2) / 2
local records = redis.call('HMGET', key.records, unpack(ARGV, 3, 2 + count))
local past = finished_of(3, 2 + count)

-- DECIDE
local results, created, first_due, last = {ANSWER_RESULTS, now, 0}, 0, NEVER, 0
local new_places, new_records, new_contents, reused = {}, {}, {}, {}
local pack, char = struct.pack, string.char
local enqueued_at = pack(INSTANT, now)
-- All but the last byte of a sequence number is mostly that of the one before.
local sequence, high = control.sequence, nil
for run = 1, #ARGV[2], RUN_BYTES do
  local length, flags, level = struct.unpack(RUN_FORMAT, ARGV[2], run)
  local due = instant(ARGV[2], run + RUN_DUE_FROM - 1)
  local score, expires = nil, flags >= EXPIRING
  local first = last + 1
  last = last + length
  for i = first, last do
    local id, item, known_digest, status = ARGV[2 + i], ARGV[2 + count + i], nil, nil
    if records[i] then
      judge_live()
    end
    if not status and past[i] then
      if flags % 2 == REUSES then
        reused[#reused + 1] = id
      else
        known_digest, status = sub(past[i], FINISHED_DIGEST), byte(past[i], FINISHED_STATUS)
      end
    end
    if status then
      local digest = expires and sub(item, EXPIRING_MESSAGE_DIGEST) or sub(item, NEW_MESSAGE_DIGEST)
      results[3 + i] = known_digest == digest and -status or ENQUEUE_CONFLICT - status
    else
      sequence, created = sequence + 1, created + 1
      local low = char(sequence % 256)
      if low == '\0' or not high then
        high = sub(pack(U64, sequence), HIGH_SEQUENCE)
      end
      score = score or due_score(level, due)
      new_places[2 * created - 1], new_places[2 * created] = score, high .. low .. id
      new_records[2 * created - 1] = id
      if not expires and byte(item, NEW_MESSAGE_FORM) < LARGE then
        -- Shortcuts put_unusual_record.
        new_records[2 * created] = high .. low .. enqueued_at .. item
      else
        put_unusual_record()
      end
      if due < first_due then
        first_due = due
      end
      results[3 + i] = due
    end
  end
end
control.sequence = sequence
if #new_contents > 0 then
  control.uses = bit.bor(control.uses, USES_CONTENTS)
end
local ring = created > 0 and rings(first_due)

-- WRITE. It takes memory, so it does not begin with begin_writes: Redis refuses its first write then, and it
-- needs no look at the key. An entry without a record, left by a file that was torn there, does not
-- keep its message from being sent again.
if created > 0 then
  look_at_minute()
  --@first ZADD index
  ask()
  write()
  commit()
end
results[3] = control.revision
return results
