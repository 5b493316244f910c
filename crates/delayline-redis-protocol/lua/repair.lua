-- State::repair. ARGV and results: like check.lua; what is found is mended. A position may also be 6:
-- records without an index entry, which are looked for with a cursor (in the halves of the sequence) if
-- the counts say that there are some.
--
-- It has no phases: it looks at one entry after the other, and mends what it finds at once.

--@include prelude.lua
--@include write.lua
--@include scheduling.lua
--@include records.lua
--@include details.lua
--@include walk.lua
--@include audit.lua
--@include remains.lua
--@include orphans.lua

local limit, position = tonumber(ARGV[2]), position_from(3)
local examined, changed = 0, false

-- They fail here, before any write, if a key holds something else.
redis.call('ZCARD', key.due)
redis.call('ZCARD', key.leased)
redis.call('ZCARD', key.dead)
redis.call('HLEN', key.records)
redis.call('HLEN', key.details)
redis.call('HLEN', key.finished_new)
redis.call('HLEN', key.finished_old)
redis.call('HLEN', key.journal_new)
redis.call('HLEN', key.journal_old)
local silent = redis.call('LLEN', key.bell) == 0
if redis.call('HLEN', key.contents) > 0 then
  control.uses = bit.bor(control.uses, USES_CONTENTS)
end

local function touch()
  if not changed then
    --@ask all
    begin_writes()
    changed = true
  end
end

local function possible(instant)
  return instant and instant >= 0 and instant <= MAX_TIMESTAMP
end

local function is_indexed(member)
  return redis.call('ZSCORE', key.due, member) or redis.call('ZSCORE', key.leased, member)
    or redis.call('ZSCORE', key.dead, member)
end

-- Writes where a message stands, and then that it stands nowhere else.
local function place_in_due(member, score)
  redis.call('ZADD', key.due, score, member)
  redis.call('ZREM', key.leased, member)
  redis.call('ZREM', key.dead, member)
end

local function place_in_leased(member, lease_end)
  redis.call('ZADD', key.leased, lease_end, member)
  redis.call('ZREM', key.due, member)
  redis.call('ZREM', key.dead, member)
end

local function place_in_dead(member, died_at)
  redis.call('ZADD', key.dead, died_at, member)
  redis.call('ZREM', key.due, member)
  redis.call('ZREM', key.leased, member)
end

local function remove_entries(member)
  redis.call('ZREM', key.due, member)
  redis.call('ZREM', key.leased, member)
  redis.call('ZREM', key.dead, member)
end

local function remove_message(id)
  redis.call('HDEL', key.contents, id)
  redis.call('HDEL', key.records, id)
  redis.call('HDEL', key.details, id)
end

-- Where a message stands whose record is whole and whose details are readable or not there. If an
-- operation was torn, that is where it was or where it was going. Answers false if that is not known:
-- a due instant that is lost could only be guessed, and too early.
local function put_right(id, member, record, entry)
  local score = tonumber(redis.call('ZSCORE', key.due, member) or -1)
  local due_at = score >= 0 and score < (LAST_LEVEL + 1) * LEVEL and possible(score % LEVEL) and score % LEVEL
  local lease_end = tonumber(redis.call('ZSCORE', key.leased, member) or -1)
  local died_at = tonumber(redis.call('ZSCORE', key.dead, member) or -1)
  local d = entry and read_details(entry)
  local phase = d and d.phase or PHASE_WAITING
  if phase == PHASE_DEAD then
    place_in_dead(member, possible(died_at) and died_at or now)
  elseif phase == PHASE_LEASED and due_at and lease_end < 0 then
    -- Nobody has that lease.
    d.phase = PHASE_WAITING
    redis.call('HSET', key.details, id, write_details(d))
    place_in_due(member, due_score(d.level, due_at))
  elseif phase ~= PHASE_WAITING then
    -- A lease whose end is lost is over: the next claim takes it back.
    place_in_leased(member, possible(lease_end) and lease_end or now)
  elseif due_at then
    place_in_due(member, due_score(level_of(record), due_at))
  elseif d and (possible(lease_end) or possible(died_at)) then
    -- It was given back or redriven, and its details know for when.
    place_in_due(member, due_score(d.level, d.due))
  else
    return false
  end
  return true
end

-- Whether a message has finished, and all that was left to do was to remove it.
local function is_over(id, record, entry)
  local past = finished_as(id)
  if not past or not record then
    return past
  end
  return #record >= RECORD_BYTES and not is_indexed(member_of(record, id))
    and sub(past, FINISHED_DIGEST) == digest_of(record)
    and (#past == FINISHED_BYTES or entry and sub(past, FINISHED_LEASE_FROM) == sub(entry, DETAILS_LEASE))
end

-- Puts a message into the one place that it belongs to, or to the dead letters if that is not known
-- any more. `stray` is the member that led to it, if one did. Like every script it writes a new place
-- before it clears the old one.
local function mend(id, stray)
  touch()
  if not is_id(id) then
    return remove_entries(stray)
  end
  local record = redis.call('HGET', key.records, id)
  local entry = redis.call('HGET', key.details, id)
  if is_over(id, record, entry) then
    remove_message(id)
    return stray and remove_entries(stray)
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
      known = belong_together(entry, sub(record, RECORD_SEQUENCE), fixed_of(record, limits))
    end
  elseif entry then
    known = false
  end
  if not known or not put_right(id, member, record, entry) then
    local score = tonumber(redis.call('ZSCORE', key.due, member) or -1)
    local due_at = score >= 0 and score < (LAST_LEVEL + 1) * LEVEL and score % LEVEL
    local left, stub = remains(member, record, possible(due_at) and due_at or now)
    redis.call('HSET', key.details, id, left)
    place_in_dead(member, now)
    if stub then
      redis.call('HSET', key.records, id, stub)
    end
  end
  if stray and stray ~= member then
    remove_entries(stray)
  end
end

-- Looks at a page of one index, and mends what is wrong there.
local function repair(index, number, base)
  if position and position.index > number or examined >= limit then
    return
  end
  local after_position = position and position.index == number and position or nil
  local found = walk(index, base, 0, MAX_TIMESTAMP, after_position, limit - examined)
  if index == due and #found > 0 and bit.band(control.uses, 2 ^ number) == 0 then
    -- Claims look only where they know of messages.
    control.uses = bit.bor(control.uses, 2 ^ number)
    touch()
  end
  for i = 1, #found, 2 do
    local member, before = found[i], #results
    examine(index, number, member)
    if #results > before then
      mend(sub(member, MEMBER_ID_FROM), member)
    end
    examined = examined + 1
    results[6], results[7] = number, tonumber(found[i + 1]) - base
    results[8], results[9] = sequence_of(member)
  end
end

-- Mends entries with instants that cannot be.
local function repair_range(number, members)
  for _, member in ipairs(members) do
    find(FOUND_MALFORMED_ENTRY, number, '')
    mend(sub(member, MEMBER_ID_FROM), member)
  end
end

local function repair_impossible()
  local from = '-inf'
  for level = 0, 4 do
    local to = level < 4 and format('(%.0f', level * LEVEL) or '+inf'
    repair_range(0, redis.call('ZRANGEBYSCORE', key.due, from, to, 'LIMIT', 0, limit))
    from = format('(%.0f', level * LEVEL + MAX_TIMESTAMP)
  end
  repair_range(AT_LEASED, redis.call('ZRANGEBYSCORE', key.leased, '-inf', '(0', 'LIMIT', 0, limit))
  repair_range(AT_LEASED,
    redis.call('ZRANGEBYSCORE', key.leased, format('(%.0f', MAX_TIMESTAMP), '+inf', 'LIMIT', 0, limit))
  repair_range(AT_DEAD, redis.call('ZRANGEBYSCORE', key.dead, '-inf', '(0', 'LIMIT', 0, limit))
  repair_range(AT_DEAD,
    redis.call('ZRANGEBYSCORE', key.dead, format('(%.0f', MAX_TIMESTAMP), '+inf', 'LIMIT', 0, limit))
end

local function remove_orphan(number, id)
  find_orphan(number, id)
  touch()
  redis.call('HDEL', key.details, id)
  redis.call('HDEL', key.contents, id)
end

-- Looks at some records. Answers where to go on.
local function repair_records(cursor)
  local page = redis.call('HSCAN', key.records, format('%.0f', cursor), 'COUNT', limit)
  for i = 1, #page[2], 2 do
    local id, value = page[2][i], page[2][i + 1]
    if not is_id(id) then
      find_orphan(AT_RECORDS, id)
      touch()
      remove_message(id)
    elseif #value < MEMBER_BYTES or not is_indexed(member_of(value, id)) then
      find(FOUND_ORPHAN, id, '')
      mend(id)
    end
  end
  if page[1] ~= '0' then
    return AT_RECORDS, tonumber(page[1])
  end
  return AT_DETAILS, 0
end

local function indexed()
  return redis.call('ZCARD', key.due) + redis.call('ZCARD', key.leased)
    + redis.call('ZCARD', key.dead)
end

local function accounted_for()
  return indexed() + control.acked + control.cancelled + control.purged
end

-- What is remembered goes by itself. A file that was torn just before PEXPIRE keeps it for as long as
-- nothing is added.
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
end

for level = 0, LAST_LEVEL do
  repair(due, level, level * LEVEL)
end
repair(leased, AT_LEASED, 0)
repair(dead, AT_DEAD, 0)

local goes_on = examined == limit
if not goes_on then
  local number, cursor = AT_RECORDS, 0
  if position and position.index >= AT_RECORDS then
    number, cursor = position.index, position.high * HALF + position.low
    if cursor >= MAX_EXACT then
      cursor = 0 -- no server has given it
    end
  else
    repair_impossible()
  end
  local right = redis.call('HLEN', key.records) == indexed() and accounted_for() == control.sequence
  if number == AT_RECORDS and not right then
    number, cursor = repair_records(cursor)
  else
    number, cursor = look_for_orphans(math.max(number, AT_DETAILS), cursor, remove_orphan)
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
        -- Of these nothing is left.
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
