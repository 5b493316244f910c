-- State::update. ARGV: now, the runs, the ids, then each message as `enqueue` takes it, behind a
-- `window` and an `update` if its run says that it has one (layout.rs).
-- Results: as those of `enqueue`; ENQUEUE_UPDATED plus the new due instant; ENQUEUE_FOLLOWING, or
-- ENQUEUE_FOLLOWING_AGAIN if there was a follower; ENQUEUE_THROTTLED plus when that ends, or
-- ENQUEUE_TOO_MANY_THROTTLED.

--@include prelude.lua
--@include lists.lua
--@include bell.lua
--@include scheduling.lua
--@include places.lua
--@include records.lua
--@include details.lua
--@include finished.lua
--@include over.lua
--@include take_over.lua

local new_details, revived = {}, {}

--@include lanes.lua
--@include turns.lua
--@include freeing.lua
--@include windows.lua
--@include write.lua

local pack = struct.pack

-- Takes an argument apart. Sets window, if it throttles; token, content, moves and at_most, if it
-- is an update; expires_at; tail, its record from the digest on; and apart, its content, if that is
-- large.
--@inline
local function read_argument()
  if throttles then
    window, item = struct.unpack(INSTANT, item), sub(item, WINDOW_BYTES + 1)
  end
  if updates then
    token = sub(item, UPDATE_TOKEN)
    content, moves, at_most = struct.unpack(UPDATE_FORMAT, item, UPDATE_CONTENT_FROM)
    item = sub(item, UPDATE_BYTES + 1)
  end
  tail, lane = item, ''
  if expires then
    expires_at, tail = instant(item, EXPIRING_MESSAGE_EXPIRES_FROM), sub(item, EXPIRING_MESSAGE_DIGEST_FROM)
  end
  local form, position = byte(tail, NEW_MESSAGE_FORM), NEW_MESSAGE_BYTES + 1
  if bit.band(form, LIMITED) ~= 0 then
    position = position + LIMITS_BYTES
  end
  if form >= GROUPED then
    form, position = form - GROUPED, position + GROUP_BYTES + byte(tail, NEW_MESSAGE_BYTES + GROUP_BYTES)
    lane = sub(tail, NEW_MESSAGE_BYTES + INSTANT_BYTES + 1, NEW_MESSAGE_BYTES + GROUP_BYTES - 1)
  end
  if expires then
    tail = sub(tail, 1, position - 1) .. pack(INSTANT, expires_at) .. sub(tail, position)
    position = position + INSTANT_BYTES
  end
  if form >= LARGE then
    apart = sub(tail, position + LENGTHS_BYTES)
    tail = sub(tail, 1, position + LENGTHS_BYTES - 1)
  end
end

-- Whether these tokens contain the update's.
local function is_known(tokens, token)
  for from = 1, TOKENS_BYTES, TOKEN_BYTES do
    if sub(tokens, from, from + TOKEN_BYTES - 1) == token then
      return true
    end
  end
end

-- These tokens and the update's, without the oldest.
local function with_token(tokens, token)
  return sub(tokens, TOKEN_BYTES + 1) .. token
end

-- Update::due_after.
local function due_after(moves, at_most, due, old_due, enqueued_at)
  if moves == UPDATE_LATER then
    return math.max(old_due, math.min(due, enqueued_at + at_most, MAX_TIMESTAMP))
  end
  return moves == UPDATE_SET and due or old_due
end

-- Level and limits of a new record, as in details.
local function limits_of(tail, level)
  local limits, from = DEFAULT_LIMITS, NEW_MESSAGE_BYTES + 1
  if bit.band(byte(tail, NEW_MESSAGE_FORM), LIMITED) ~= 0 then
    if level == AT_GROUPED then
      from = from + GROUP_BYTES + byte(tail, NEW_MESSAGE_BYTES + GROUP_BYTES)
    end
    limits = sub(tail, from, from + LIMITS_BYTES - 1)
  end
  return string.char(level) .. limits
end

-- State::create, also for a message that is no update.
--@inline
local function create()
  local refused = throttles
    and (throttle(id) or not begin_window(id, window) and ENQUEUE_TOO_MANY_THROTTLED)
  if refused then
    results[3 + i] = refused
  else
    put_new()
  end
end

-- For create.
--@inline
local function put_new()
  local sequence, score = next_sequence(level), nil
  if level == AT_GROUPED then
    tail = with_due(tail, NEW_MESSAGE_BYTES, due)
    if due <= now and sends_into_lanes() then
      join(lane)
      score = lane_score(lane)
    end
  end
  push(new_places, score or due_score(level, due), sequence .. lane .. id)
  push(new_records, id, sequence .. enqueued_at .. tail)
  if apart then
    push(new_contents, id, apart)
  end
  if past[i] then
    reused[#reused + 1] = id
  end
  if updates then
    push(new_updates, id, with_token(tokens, token))
  end
  first_due = math.min(first_due, due)
  results[3 + i] = due
end

-- For a message that a worker holds.
--@inline
local function follow()
  local since, its_due, rest, answer = enqueued_at, due, nil, ENQUEUE_FOLLOWING
  if has_follower(update, sub(record, RECORD_SEQUENCE)) then
    answer, since = ENQUEUE_FOLLOWING_AGAIN, sub(update, UPDATES_ENQUEUED_AT)
    its_due = due_after(moves, at_most, due, (struct.unpack(INSTANT, update, UPDATES_DUE_FROM)),
      (struct.unpack(INSTANT, since)))
    rest = content == UPDATE_KEEP and sub(update, UPDATES_LEVEL_FROM)
  end
  rest = rest or limits_of(tail, level) .. since .. tail
  control.uses = bit.bor(control.uses, 2 ^ level)
  push(new_updates, id,
    with_token(tokens, token) .. sub(record, RECORD_SEQUENCE) .. pack(INSTANT, its_due) .. rest)
  results[3 + i] = answer
end

-- State::change, for a message that waits until `instant_of`.
--@inline
local function change()
  local position, _, its_expiry = read_record(record)
  local since, its_due = enqueued_at, due
  if position then
    since = sub(record, RECORD_ENQUEUED_AT)
    its_due = due_after(moves, at_most, due, instant_of, (struct.unpack(INSTANT, since)))
  end
  local is_same = position and digest_of(record) == sub(tail, NEW_MESSAGE_DIGEST) and its_expiry == expires_at
  if not position or content == UPDATE_REPLACE and not is_same then
    replace()
  else
    push(new_updates, id, with_token(tokens, token))
    results[3 + i] = -status
    if its_due ~= instant_of then
      push(new_places, due_score(level_of(record), its_due), member_of(record, id))
      if level_of(record) == AT_GROUPED then
        keep_due(id, record, its_due)
        leaving_lane[member_of(record, id)] = true
      end
      first_due = math.min(first_due, its_due)
      results[3 + i] = ENQUEUE_UPDATED + its_due
    end
  end
end

-- State::replace. Reads since and its_due.
--@inline
local function replace()
  control.replaced = control.replaced + 1
  local sequence, entry = next_sequence(level), redis.call('HGET', key.details, id)
  local member = sequence .. lane .. id
  if level == AT_GROUPED then
    tail = with_due(tail, NEW_MESSAGE_BYTES, its_due)
  end
  push(new_places, due_score(level, its_due), member)
  push(new_records, id, sequence .. since .. tail)
  push(new_updates, id, with_token(tokens, token))
  if in_order then
    free_slot(member_of(record, id))
  end
  if member_of(record, id) ~= member then -- as in take_over
    removed[#removed + 1] = member_of(record, id)
  end
  if bit.band(control.uses, USES_CONTENTS) ~= 0 then
    replaced_contents[#replaced_contents + 1] = id
  end
  if entry then
    local d = fresh_details(sequence, sub(tail, NEW_MESSAGE_DIGEST) .. limits_of(tail, level), lane)
    if readable_details(entry) and sub(entry, DETAILS_SEQUENCE) == sub(record, RECORD_SEQUENCE) then
      local reason = byte(entry, DETAILS_REASON)
      d.lease, d.settled = sub(entry, DETAILS_LEASE), byte(entry, DETAILS_SETTLED)
      local died = reason == MAX_FAILURES or reason == REJECTED or reason == UNDECODABLE
      if d.settled > 0 and d.settled < ENDED and died then
        d.settled = d.settled + ENDED * DEAD
      end
    end
    d.due = its_due
    push(carried, id, write_details(d))
  end
  first_due = math.min(first_due, its_due)
  results[3 + i] = ENQUEUE_UPDATED + its_due
end

-- READ
--@reads index, records, updates
local count = (#ARGV - 2) / 2
local records = redis.call('HMGET', key.records, unpack(ARGV, 3, 2 + count))
local stored = redis.call('HMGET', key.updates, unpack(ARGV, 3, 2 + count))
local past = {}
for i = 1, count do
  if not records[i] then
    past = finished_of(3, 2 + count)
    break
  end
end

-- DECIDE
local results, first_due, last = {ANSWER_RESULTS, now, 0}, NEVER, 0
local new_places, new_records, new_contents, new_updates, carried = {}, {}, {}, {}, {}
local reused, removed, replaced_contents = {}, {}, {}
local enqueued_at = pack(INSTANT, now)
for run = 1, #ARGV[2], RUN_BYTES do
  local length, flags, level = struct.unpack(RUN_FORMAT, ARGV[2], run)
  local due = instant(ARGV[2], run + RUN_DUE_FROM - 1)
  local reuses, expires = flags % 2 == REUSES, bit.band(flags, EXPIRING) ~= 0
  local updates, throttles = bit.band(flags, UPDATING) ~= 0, bit.band(flags, THROTTLED) ~= 0
  local first = last + 1
  last = last + length
  for i = first, last do
    local id, item, record, update = ARGV[2 + i], ARGV[2 + count + i], records[i], stored[i]
    local window, token, content, moves, at_most, tail, apart, lane
    local expires_at = NEVER
    read_argument()
    local status, band, instant_of
    if record then
      band, instant_of = place_of(member_of(record, id))
      if not band then
        past[i] = finished_of(2 + i, 2 + i)[1]
      end
      if band or not is_over(record, past[i], past[i] and redis.call('HGET', key.details, id)) then
        status = READY
        if band == AT_DEAD then
          status = DEAD
        elseif band == AT_LEASED then
          status = LEASED
        elseif band == AT_LANES then
          instant_of = due_in_lane(id, record, redis.call('HGET', key.details, id))
        elseif band and instant_of > now then
          status = SCHEDULED
        end
      end
    end
    local tokens = update and #update >= UPDATES_BYTES and sub(update, UPDATES_TOKENS) or NO_TOKENS
    if not status and past[i] then
      tokens = #past[i] > FINISHED_BYTES + LEASE_BYTES and sub(past[i], -TOKENS_BYTES) or NO_TOKENS
    end
    local digest, known_digest = sub(tail, NEW_MESSAGE_DIGEST), nil
    if status then
      known_digest = digest_of(record)
    elseif past[i] and (not reuses or updates and is_known(tokens, token)) then
      known_digest, status, band = sub(past[i], FINISHED_DIGEST), byte(past[i], FINISHED_STATUS), nil
    end
    if not status then
      create()
    elseif not updates then
      results[3 + i] = known_digest == digest and -status or throttles and throttle(id) or ENQUEUE_CONFLICT - status
    elseif not band or is_known(tokens, token) then
      results[3 + i] = -status
    elseif band <= LAST_LEVEL or band >= AT_LANES then
      change()
    elseif band == AT_LEASED then
      follow()
    else
      local since, its_due = enqueued_at, due
      replace()
    end
  end
end
if #new_contents > 0 then
  control.uses = bit.bor(control.uses, USES_CONTENTS)
end
if #new_updates > 0 then
  control.uses = bit.bor(control.uses, USES_UPDATES)
end
if unblocked > 0 and redis.call('ZCOUNT', key.index, FIRST_IN_LANES, LAST_IN_LANES) > 0 then
  first_due = 0
end
local ring = first_due < NEVER and rings(first_due)

-- WRITE. It takes memory, so it does not begin with begin_writes: Redis refuses its first write
-- then. If it is not ZADD, nothing is written to the index.
if #new_places > 0 or #new_updates > 0 then
  look_at_minute()
  --@first ZADD index
  ask()
  if #revived + #new_details + #served + #old_slots > 0 then -- they are written before
    --@ask !ZADD index
  end
  if #new_windows > 0 then
    --@ask ZADD windows, ZREM windows, PEXPIRE windows
  end
  keep_uses()
  write()
  -- Last, so that no torn send is throttled, and lost.
  if #new_windows > 0 then
    write_windows()
  end
  commit()
end
results[3] = control.revision
return results
