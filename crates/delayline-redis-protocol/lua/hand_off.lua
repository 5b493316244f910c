-- State::hand_off. ARGV: now, the ids of the settlements, the settlements as `settle` takes them,
-- the ids of the messages, the messages as `enqueue` takes them, the results of the settlements
-- that have one, the holds as `settle` takes them, what each settlement carries (`hand_off`,
-- layout.rs), the runs of the messages, the number of settlements.
-- Results: for each settlement as `settle`; for each message as `enqueue`, or 0 if it was not
-- enqueued; for each result 1 if it is kept, or 0.

--@include prelude.lua
--@include lists.lua
--@include bell.lua
--@include scheduling.lua
--@include totals.lua
--@include places.lua
--@include records.lua
--@include details.lua
--@include turns.lua
--@include freeing.lua
--@include finished.lua
--@include over.lua
--@include results.lua

local results, first_due = {ANSWER_RESULTS, now, 0}, NEVER
local new_finished, new_details, new_places, ended, gone = {}, {}, {}, {}, {}
local new_records, new_updates, removed, replaced_contents = {}, {}, {}, {}
-- The numbers of the messages whose settlements are not done, and what the others are written as.
local unsent, reused = {}, {}
local sent_places, sent_contents, sent_records = {}, {}, {}
local new_results, new_ends, old_results = {}, {}, {}

--@include finish.lua
--@include take_over.lua
--@include saving.lua
--@include settling.lua
--@include enqueuing.lua
--@include write.lua

-- Notes the messages of settlements that are not done.
--@inline
local function hold_back()
  local last = 0
  for settlement = 1, settlements do
    local follow = struct.unpack(U16, carried_by, (settlement - 1) * HAND_OFF_BYTES + HAND_OFF_COUNT_FROM)
    if results[3 + settlement] <= 0 then
      for i = last + 1, last + follow do
        unsent[i] = true
      end
    end
    last = last + follow
  end
end

-- State::keep_results. Reads carriers, the numbers of the settlements that have results. Sets
-- new_results, new_ends, old_results, and whether each is kept.
--@inline
local function keep_results()
  local new, new_bytes, going = 0, 0, {}
  for n, i in ipairs(carriers) do
    if results[3 + i] > 0 then
      new, new_bytes = new + 1, new_bytes + #ARGV[before_results + n]
    end
  end
  local sum = redis.call('HGET', key.results, '')
  local bytes, kept = tonumber(sum or 0), redis.call('HLEN', key.results) - (sum and 1 or 0)
  if not bytes or not (bytes >= 0 and bytes < MAX_EXACT) then
    bytes = 0 -- damaged
  end
  if new > 0 then
    local fits = bytes + new_bytes <= MAX_RESULTS_BYTES and kept + new <= MAX_RESULTS
    local old_bytes, old = trim_results(going, fits and 2 * new or MAX_EXPIRED_RESULTS)
    bytes, kept = bytes - old_bytes, kept - old
  end
  for n, i in ipairs(carriers) do
    local id, result, lease = ARGV[1 + i], ARGV[before_results + n], sub(ARGV[1 + settlements + i], SETTLEMENT_LEASE)
    local is_kept
    if results[3 + i] > 0 then
      local known = not going[id] and redis.call('HEXISTS', key.results, id) == 1
      local change, more = #result - (known and result_bytes(id) or 0), known and 0 or 1
      is_kept = bytes + change <= MAX_RESULTS_BYTES and kept + more <= MAX_RESULTS
      if is_kept then
        local retention = struct.unpack(INSTANT, carried_by, (i - 1) * HAND_OFF_BYTES + HAND_OFF_RETENTION_FROM)
        local ends = after(retention)
        bytes, kept, going[id] = bytes + change, kept + more, nil
        push(new_results, id, struct.pack(INSTANT, ends) .. lease .. result)
        push(new_ends, format('%d', ends), id)
      end
    elseif results[3 + i] ~= SETTLE_STALE and results[3 + i] ~= SETTLE_MISSING then
      local known = result_of(id)
      is_kept = known and sub(known, RESULT_LEASE) == lease
    end
    results[3 + settlements + messages + n] = is_kept and 1 or 0
  end
  for id in pairs(going) do
    old_results[#old_results + 1] = id
  end
  if #new_results > 0 or #old_results > 0 then
    push(new_results, '', format('%d', math.max(0, bytes)))
  end
end

-- An id comes into `results_until` before its result, and leaves it after: nothing is kept for
-- ever.
--@inline
local function write_results()
  if #new_ends > 0 then
    redis.call('ZADD', key.results_until, unpack(new_ends))
  end
  redis.call('HSET', key.results, unpack(new_results))
  if #old_results > 0 then
    redis.call('HDEL', key.results, unpack(old_results))
    redis.call('ZREM', key.results_until, unpack(old_results))
  end
  redis.call('PEXPIRE', key.results, RESULT_RETENTION)
  redis.call('PEXPIRE', key.results_until, RESULT_RETENTION)
end

-- READ
--@reads details
local settlements, runs, carried_by = tonumber(ARGV[#ARGV]), ARGV[#ARGV - 1], ARGV[#ARGV - 2]
local holds, freed, claims_next = ARGV[#ARGV - 3], 0, false
local carriers = {}
for i = 1, settlements do
  if struct.unpack(INSTANT, carried_by, (i - 1) * HAND_OFF_BYTES + HAND_OFF_RETENTION_FROM) > 0 then
    carriers[#carriers + 1] = i
  end
end
local messages, before_messages = (#ARGV - 5 - 2 * settlements - #carriers) / 2, 1 + 2 * settlements
local before_results = before_messages + 2 * messages
local stored = redis.call('HMGET', key.details, unpack(ARGV, 2, 1 + settlements))
local known = bit.band(control.uses, USES_UPDATES) ~= 0
  and redis.call('HMGET', key.updates, unpack(ARGV, 2, 1 + settlements))
local records = messages > 0
  and redis.call('HMGET', key.records, unpack(ARGV, before_messages + 1, before_messages + messages))
if not records then
  --@look records
end
local past = finished_of(before_messages + 1, before_messages + messages)

-- DECIDE
do
  local count = settlements
  settle_all()
  look_at_limits()
end
if #carriers > 0 then
  keep_results()
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
local ring = first_due < NEVER and not (claims_next and first_due <= now) and rings(first_due, freed)

-- WRITE. Unlike a settlement, it is refused as a whole by a server that is full: its first command
-- takes memory, though it changes nothing. The new messages are written before the settlements, so
-- that no torn settlement is reported as done without having sent them.
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
  if #new_results > 0 then
    --@ask HSET results, ZADD results_until, HDEL results, ZREM results_until
    --@ask PEXPIRE results, PEXPIRE results_until
  end
  redis.call('BITFIELD', key.totals)
  keep_uses()
  if #new_results > 0 then
    write_results()
  end
  if #new_turns > 0 then
    redis.call('ZADD', key.turns, 'NX', unpack(new_turns))
    new_turns = {}
  end
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
