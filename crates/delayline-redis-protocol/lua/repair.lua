-- State::repair. ARGV and results are those of check.lua; findings are repaired. A position may
-- also be AT_RECORDS: records without a place, which are searched with a cursor (in the halves of
-- the sequence) if the counts say that there are some.
--
-- It has no phases: it examines one entry after the other, and repairs each at once.

--@include prelude.lua

-- What take_over decides.
local new_details, new_places, new_records = {}, {}, {}
local new_updates, removed, replaced_contents = {}, {}, {}

--@include lists.lua
--@include write.lua
--@include scheduling.lua
--@include places.lua
--@include records.lua
--@include details.lua
--@include take_over.lua
--@include turns.lua
--@include slots.lua
--@include walk.lua
--@include audit.lua
--@include remains.lua
--@include over.lua
--@include orphans.lua

local limit, position = tonumber(ARGV[2]), position_from(3)
local changed = false

-- If a key has another type, these calls fail before any write.
redis.call('ZCARD', key.index)
redis.call('HLEN', key.records)
redis.call('HLEN', key.details)
local has_updates = redis.call('HLEN', key.updates) > 0
redis.call('HLEN', key.finished_new)
redis.call('HLEN', key.finished_old)
redis.call('HLEN', key.journal_new)
redis.call('HLEN', key.journal_old)
redis.call('HLEN', key.history)
redis.call('HLEN', key.results)
redis.call('ZCARD', key.results_until)
redis.call('ZCARD', key.windows)
redis.call('ZCARD', key.turns)
redis.call('ZCARD', key.slots)
local silent = redis.call('LLEN', key.bell) == 0
local has_contents = redis.call('HLEN', key.contents) > 0

local function touch()
  if not changed then
    --@ask all
    begin_writes()
    changed = true
  end
end

-- In the order of write.
local function remove_message(id)
  redis.call('HDEL', key.records, id)
  redis.call('HDEL', key.contents, id)
  redis.call('HDEL', key.updates, id)
  redis.call('HDEL', key.details, id)
end

local function give_turn(lane)
  unblock(lane)
  redis.call('ZADD', key.turns, unpack(served))
  served = {}
end

-- Puts a message into its place, if its record is whole and its details are readable or absent.
-- After a torn operation, that is the place before or after the operation. Returns false if the
-- place is not known: a lost due instant could only be guessed, and the message could be early.
local function put_right(id, member, record, entry)
  local band, instant = place_of(member)
  local d = entry and read_details(entry)
  local state, reason, score = LEASE_CLOSED, 0, nil
  if band == AT_LANES and level_of(record) == AT_GROUPED then
    score = lane_score(lane_of(record))
    if not has_its_turn(lane_of(record)) then
      give_turn(lane_of(record))
    end
  elseif band and (band <= LAST_LEVEL or band >= AT_LANES) then
    score = due_score(level_of(record), band == AT_LANES and now or instant)
  elseif not d then
    return false
  elseif d.state ~= LEASE_CLOSED and (band ~= AT_DEAD or d.reason == 0) then
    -- A lease without a known end expires now: the next claim takes it back.
    state, score = d.state, format('%d', AT_LEASED * BAND + (band == AT_LEASED and instant or now))
  elseif d.reason ~= 0 then
    reason, score = d.reason, format('%d', AT_DEAD * BAND + (band == AT_DEAD and instant or now))
  elseif band then
    -- It was given back or redriven, and its details have the due instant.
    score = due_score(d.level, d.due)
  else
    return false
  end
  if d and (d.state ~= state or d.reason ~= reason) then
    d.state, d.reason = state, reason
    redis.call('HSET', key.details, id, write_details(d))
  end
  redis.call('ZADD', key.index, score, member)
  return true
end

-- Whether a message has finished, so that it only had to be removed.
local function has_finished(id, record, entry)
  local past = finished_as(id)
  if not past or not record then
    return past
  end
  return not redis.call('ZSCORE', key.index, member_of(record, id)) and is_over(record, past, entry)
end

-- Puts a follower in the place of its message, which is not leased or cannot be read. If a
-- settlement was torn, the details have the end of the message.
local function promote(id, member, entry, update)
  local lease, settled = NO_LEASE, 0
  if entry and readable_details(entry) then
    lease, settled = sub(entry, DETAILS_LEASE), byte(entry, DETAILS_SETTLED)
  end
  take_over(id, member, settled < ENDED and REPLACED or math.floor(settled / ENDED), lease, settled, update)
  redis.call('HSET', key.details, unpack(new_details))
  redis.call('ZADD', key.index, unpack(new_places))
  redis.call('HSET', key.records, unpack(new_records))
  redis.call('HSET', key.updates, unpack(new_updates))
  redis.call('HDEL', key.contents, id)
  if member ~= new_places[2] then
    redis.call('ZREM', key.index, member)
  end
  new_details, new_places, new_records, new_updates, removed, replaced_contents = {}, {}, {}, {}, {}, {}
end

-- Puts a message into its place, or to the dead letters if the place is not known any more. `stray`
-- is the member by which it was found, if there is one.
local function mend(id, stray)
  touch()
  if not is_id(id) then
    return redis.call('ZREM', key.index, stray)
  end
  local record = redis.call('HGET', key.records, id)
  local entry = redis.call('HGET', key.details, id)
  local last_entry = entry
  if has_finished(id, record, entry) then
    remove_message(id)
    return stray and redis.call('ZREM', key.index, stray)
  end
  local _, limits = read_record(record)
  local whole = has_content(id, record)
  local member = whole and member_of(record, id) or stray
    or record and #record >= MEMBER_BYTES and member_of(record, id) or NO_SEQUENCE .. id
  local known = whole
  if whole and entry and readable_details(entry) then
    if sub(entry, DETAILS_SEQUENCE) ~= sub(record, RECORD_SEQUENCE) then
      redis.call('HDEL', key.details, id) -- left by an earlier message of that id
      entry = nil
    else
      known = are_of(entry, record, limits)
    end
  elseif entry then
    known = false
  end
  local update = redis.call('HGET', key.updates, id)
  local followed = whole and sub(record, RECORD_SEQUENCE) or update and sub(update, UPDATES_FOLLOWS)
  if has_follower(update, followed) then
    local band = place_of(member)
    local is_held = known and entry and byte(entry, DETAILS_STATE) ~= LEASE_CLOSED
      and (not band or band == AT_LEASED)
    if not is_held then
      promote(id, member, last_entry, update)
      -- A torn repair may have left an entry with the same sequence number.
      local own = member_of(redis.call('HGET', key.records, id), id)
      return stray and stray ~= own and redis.call('ZREM', key.index, stray)
    end
  elseif update and #update > UPDATES_BYTES and whole then
    redis.call('HSET', key.updates, id, sub(update, UPDATES_TOKENS))
  elseif update and #update ~= UPDATES_BYTES then
    redis.call('HDEL', key.updates, id)
  end
  if not known or not put_right(id, member, record, entry) then
    local band, instant = place_of(member)
    local is_due = band and (band <= LAST_LEVEL or band == AT_GROUPED)
    local left, stub = remains(id, member, record, is_due and instant or now)
    redis.call('HSET', key.details, id, left)
    redis.call('ZADD', key.index, dead_score(), member)
    if stub then
      redis.call('HSET', key.records, id, stub)
    end
  end
  if stray and stray ~= member then
    redis.call('ZREM', key.index, stray)
  end
end

local function mend_entry(member)
  mend(id_of(member), member)
end

local function note_use(use)
  if bit.band(control.uses, use) == 0 then
    control.uses = bit.bor(control.uses, use)
    touch()
  end
end

-- Notes the uses of the queue: scripts read only structures that are in use.
local function note_uses()
  for level = 0, LAST_LEVEL do
    if count(level * BAND, level * BAND + MAX_TIMESTAMP) > 0 then
      note_use(2 ^ level)
    end
  end
  if count(FIRST_IN_LANES, LAST_GROUPED) > 0 then
    note_use(USES_GROUPS)
  end
  if has_contents then
    note_use(USES_CONTENTS)
  end
  if has_updates then
    note_use(USES_UPDATES)
  end
end

-- Repairs some entries with impossible scores. Returns whether there may be more.
local function repair_impossible()
  local more = false
  each_gap(function(band, from, to)
    local members = redis.call('ZRANGEBYSCORE', key.index, from, to, 'LIMIT', 0, limit)
    for _, member in ipairs(members) do
      find(FOUND_MALFORMED_ENTRY, band, '')
      mend_entry(member)
    end
    more = more or #members == limit
  end)
  return more
end

local function remove_orphan(number, id, holder)
  find_orphan(number, id)
  touch()
  if holder then
    -- A slot counts for the lane of its score, whatever its member is.
    local score = tonumber(redis.call('ZSCORE', key.slots, holder) or -1)
    redis.call('ZREM', key.slots, holder)
    local lane = score >= 0 and score < BAND and struct.pack(INSTANT, score)
    if lane and redis.call('ZSCORE', key.turns, lane) == NO_TURN then
      give_turn(lane)
    end
    return
  end
  local update = redis.call('HGET', key.updates, id)
  if update and has_follower(update, sub(update, UPDATES_FOLLOWS)) and is_id(id) and not finished_as(id) then
    return mend(id)
  end
  redis.call('HDEL', key.details, id)
  redis.call('HDEL', key.updates, id)
  redis.call('HDEL', key.contents, id)
end

-- Examines some records. Returns where to continue.
local function repair_records(cursor)
  local page = redis.call('HSCAN', key.records, format('%.0f', cursor), 'COUNT', limit)
  for i = 1, #page[2], 2 do
    local id, value = page[2][i], page[2][i + 1]
    if not is_id(id) then
      find_orphan(AT_RECORDS, id)
      touch()
      remove_message(id)
    elseif #value < MEMBER_BYTES or not redis.call('ZSCORE', key.index, member_of(value, id)) then
      find(FOUND_ORPHAN, id, '')
      mend(id)
    end
  end
  if page[1] ~= '0' then
    return AT_RECORDS, tonumber(page[1])
  end
  return AT_DETAILS, 0
end

local function accounted_for()
  return redis.call('ZCARD', key.index) + control.acked + control.cancelled + control.purged
    + control.relayed + control.replaced
end

-- Memories expire. After a file was torn just before PEXPIRE, they would stay until
-- an entry is added.
local function limit_memories()
  if redis.call('PTTL', key.finished_new) == -1 then
    touch()
    redis.call('PEXPIRE', key.finished_new, 2 * FINISHED_RETENTION)
  end
  if redis.call('PTTL', key.finished_old) == -1 then
    touch()
    redis.call('PEXPIRE', key.finished_old, FINISHED_RETENTION)
  end
  if redis.call('PTTL', key.journal_new) == -1 then
    touch()
    redis.call('PEXPIRE', key.journal_new, 2 * JOURNAL_RETENTION)
  end
  if redis.call('PTTL', key.journal_old) == -1 then
    touch()
    redis.call('PEXPIRE', key.journal_old, JOURNAL_RETENTION)
  end
  if redis.call('PTTL', key.history) == -1 then
    touch()
    redis.call('PEXPIRE', key.history, HISTORY_RETENTION)
  end
  if redis.call('PTTL', key.results) == -1 then
    touch()
    redis.call('PEXPIRE', key.results, RESULT_RETENTION)
  end
  if redis.call('PTTL', key.results_until) == -1 then
    touch()
    redis.call('PEXPIRE', key.results_until, RESULT_RETENTION)
  end
  if redis.call('PTTL', key.windows) == -1 then
    touch()
    redis.call('PEXPIRE', key.windows, MAX_THROTTLE)
  end
  local endless = redis.call('ZRANGEBYSCORE', key.windows, '(' .. format('%.0f', MAX_TIMESTAMP), '+inf',
    'LIMIT', '0', MAX_BATCH)
  if #endless > 0 then
    touch()
    redis.call('ZREM', key.windows, unpack(endless))
  end
end

note_uses()
local examined = examine_entries(position, limit, mend_entry)
local goes_on = examined == limit
if not goes_on then
  local number, cursor, more = AT_RECORDS, 0, false
  if position and position.index >= AT_RECORDS then
    number, cursor = position.index, position.high * HALF + position.low
    if cursor >= MAX_EXACT then
      cursor = 0 -- no server has given it
    end
  end
  if number == AT_RECORDS and cursor == 0 then
    more = repair_impossible()
  end
  local right = redis.call('HLEN', key.records) == redis.call('ZCARD', key.index)
    and accounted_for() == control.sequence
  if more then
    number, cursor = AT_RECORDS, 0 -- the same position again
  elseif number == AT_RECORDS and not right then
    number, cursor = repair_records(cursor)
  elseif number == AT_RECORDS then
    number, cursor = look_for_orphans(AT_DETAILS, 0, remove_orphan)
  else
    number, cursor = look_for_orphans(number, cursor, remove_orphan)
  end
  if number then
    goes_on = true
    results[6], results[7] = number, 0
    results[8], results[9] = math.floor(cursor / HALF), cursor % HALF
  end
  if not goes_on then
    limit_memories()
    local accounted = accounted_for()
    if accounted ~= control.sequence then
      find(FOUND_CONSERVATION, control.sequence, accounted)
      touch()
      if accounted > control.sequence then
        control.sequence = accounted
      else
        -- No trace of these messages is left.
        control.purged = control.purged + control.sequence - accounted
      end
    end
  end
end

results[4] = examined
results[5] = goes_on and 1 or 0
if changed then
  if silent then
    redis.call('LPUSH', key.bell, '1')
  end
  commit()
end
results[3] = control.revision
return results
