-- State::hand_off. ARGV: now, the ids of the settlements, the settlements as `settle` takes them, the ids of the
-- messages, the messages as `enqueue` takes them, how many messages follow from each settlement (`hand_off`,
-- layout.rs), the runs of the messages, the number of settlements.
-- Results: for each settlement as `settle`, then for each message as `enqueue`, or 0 if it was not enqueued.

--@include prelude.lua
--@include lists.lua
--@include bell.lua
--@include scheduling.lua
--@include totals.lua
--@include places.lua
--@include records.lua
--@include details.lua
--@include finished.lua
--@include over.lua

local results, first_due = {ANSWER_RESULTS, now, 0}, NEVER
local new_finished, new_details, new_places, ended, gone = {}, {}, {}, {}, {}
local new_records, new_updates, removed, replaced_contents = {}, {}, {}, {}
-- The numbers of the messages whose settlements are not done, and what the others are written as.
local unsent, reused = {}, {}
local sent_places, sent_contents, sent_records = {}, {}, {}

--@include finish.lua
--@include take_over.lua
--@include settling.lua
--@include enqueuing.lua
--@include write.lua

-- Notes the messages of settlements that are not done.
--@inline
local function hold_back()
  local last = 0
  for settlement = 1, settlements do
    local follow = struct.unpack(U16, counts, (settlement - 1) * HAND_OFF_BYTES + 1)
    if results[3 + settlement] <= 0 then
      for i = last + 1, last + follow do
        unsent[i] = true
      end
    end
    last = last + follow
  end
end

-- READ
--@reads details, records
local settlements, runs, counts = tonumber(ARGV[#ARGV]), ARGV[#ARGV - 1], ARGV[#ARGV - 2]
local messages, before_messages = (#ARGV - 4 - 2 * settlements) / 2, 1 + 2 * settlements
local stored = redis.call('HMGET', key.details, unpack(ARGV, 2, 1 + settlements))
local known = bit.band(control.uses, USES_UPDATES) ~= 0
  and redis.call('HMGET', key.updates, unpack(ARGV, 2, 1 + settlements))
local records =
  redis.call('HMGET', key.records, unpack(ARGV, before_messages + 1, before_messages + messages))
local past = finished_of(before_messages + 1, before_messages + messages)

-- DECIDE
do
  local count, others = settlements, {}
  for i = 1, settlements do
    others[i] = i
  end
  settle_others()
end
hold_back()
do
  local count, before_ids, before_results, last = messages, before_messages, 3 + settlements, 0
  local new_places, new_contents, new_records = sent_places, sent_contents, sent_records
  local placed, recorded = 0, 0
  enqueue_runs()
end
if #sent_contents > 0 then
  control.uses = bit.bor(control.uses, USES_CONTENTS)
end
local ring = first_due < NEVER and rings(first_due)

-- WRITE. Unlike a settlement, it is refused as a whole by a server that is full: its first command takes memory,
-- though it changes nothing. What follows is written before the settlements, so that no torn one is told as done
-- and has sent nothing.
if #gone > 0 or #new_places > 0 then
  look_at_minute()
  --@first BITFIELD totals
  ask()
  if #sent_places > 0 then
    --@look index
    --@ask ZADD index, HSET records
  end
  if #sent_contents > 0 then
    --@look contents
    --@ask HSET contents
  end
  redis.call('BITFIELD', key.totals)
  keep_uses()
  if #sent_places > 0 then
    redis.call('ZADD', key.index, unpack(sent_places))
    if #sent_contents > 0 then
      redis.call('HSET', key.contents, unpack(sent_contents))
    end
    redis.call('HSET', key.records, unpack(sent_records))
  end
  write()
  commit()
end
results[3] = control.revision
return results
