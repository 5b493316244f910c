-- State::claim. ARGV: now, consumer, claim id, max, lease in ms, most content bytes, most leases
-- to take back.
-- Results: more (0 or 1), next instant or -1, then for each delivery its id, record, details and
-- deadline.

local consumer, claim_id = ARGV[2], ARGV[3]
local max, deadline = tonumber(ARGV[4]), after(tonumber(ARGV[5]))
local max_bytes, max_reclaim = tonumber(ARGV[6]), tonumber(ARGV[7])
local results, delivered, changed = {0, now, 0, 0, -1}, 0, false

local function deliver(id, record, details, its_deadline)
  local n = #results
  results[n + 1], results[n + 2] = id, record
  results[n + 3], results[n + 4] = details, its_deadline
  delivered = delivered + 1
end

-- journal[consumer]: claim id 16 | for each id its length 1 and the id.
local function journaled()
  local age, entry = now - control.journal_since, false
  local new = redis.call('HGET', key.journal_new, consumer)
  local old = redis.call('HGET', key.journal_old, consumer)
  if age < 2 * JOURNAL_RETENTION then
    entry = new
  end
  if not entry and age < JOURNAL_RETENTION then
    entry = old
  end
  return entry and sub(entry, 1, 16) == claim_id and entry
end

-- The leases of a claim that is being repeated, as far as they still hold.
local function claimed_before(entry)
  local position = 17
  while position <= #entry do
    local length = byte(entry, position)
    if position + length > #entry then
      break
    end
    local id = sub(entry, position + 1, position + length)
    position = position + 1 + length
    local details, record = redis.call('HGET', key.details, id), false
    if details and readable_details(details) and sub(details, 11, 26) == claim_id then
      record = redis.call('HGET', key.records, id)
    end
    if readable_record(record) then
      local score = tonumber(redis.call('ZSCORE', key.leased, member_of(record, id)) or 0)
      local whole = score > now and score <= MAX_TIMESTAMP and whole_record(id, record)
      if whole then
        deliver(id, whole, details, score)
      end
    end
  end
end

-- Takes back leases that have run out.
local function reclaim()
  local members =
    redis.call('ZRANGEBYSCORE', key.leased, '-inf', now, 'LIMIT', 0, max_reclaim)
  if #members == 0 then
    return
  end
  local finished_count = redis.call('HLEN', key.finished_new)
  local large_contents = redis.call('HLEN', key.contents)
  redis.call('ZCARD', key.dead)
  redis.call('ZCARD', key.due)
  redis.call('HLEN', key.records)
  local ids = {}
  for i, member in ipairs(members) do
    ids[i] = sub(member, 9)
  end
  local stored = redis.call('HMGET', key.details, unpack(ids))
  local due, dead, details, stubs, finished, gone = {}, {}, {}, {}, {}, {}
  for i, member in ipairs(members) do
    local id, entry = ids[i], stored[i]
    local phase = entry and readable_details(entry) and byte(entry)
    local leased = (phase == LEASED_PHASE or phase == CANCELLING_PHASE)
      and belong_together(entry, sub(member, 1, 8))
    if not leased then
      local record = is_id(id) and redis.call('HGET', key.records, id)
      if is_id(id) and not stands_elsewhere(id, member, record, false, true) then
        local left, stub = remains(member, record, now)
        details[#details + 1] = id
        details[#details + 1] = left
        dead[#dead + 1] = now
        dead[#dead + 1] = member
        if stub then
          stubs[#stubs + 1] = id
          stubs[#stubs + 1] = stub
        end
      end
    elseif phase == CANCELLING_PHASE then
      finished[#finished + 1] = id
      finished[#finished + 1] = string.char(CANCELLED) .. sub(entry, 35, 42)
      gone[#gone + 1] = id
      control.cancelled = control.cancelled + 1
    else
      local d = read_details(entry)
      d.crashes, d.settled, d.phase = d.crashes + 1, 0, WAITING_PHASE
      if d.crashes >= d.max_crashes then
        bury(d, MAX_CRASHES)
        dead[#dead + 1] = now
        dead[#dead + 1] = member
      else
        due[#due + 1] = due_score(d.level, d.due)
        due[#due + 1] = member
      end
      details[#details + 1] = id
      details[#details + 1] = write_details(d)
    end
  end
  begin_writes()
  if #stubs > 0 then
    redis.call('HSET', key.records, unpack(stubs))
  end
  if #details > 0 then
    redis.call('HSET', key.details, unpack(details))
  end
  if #due > 0 then
    redis.call('ZADD', key.due, unpack(due))
  end
  if #dead > 0 then
    redis.call('ZADD', key.dead, unpack(dead))
  end
  if #finished > 0 then
    remember_finished(finished, finished_count)
  end
  redis.call('ZREM', key.leased, unpack(members))
  if #gone > 0 then
    delete_messages(gone, large_contents)
  end
  changed = true
end

-- The first `max` ready messages: ids, members and due instants.
local function ready_messages()
  local ids, members, due = {}, {}, {}
  for level = 0, 3 do
    if #ids < max and bit.band(control.levels, 2 ^ level) ~= 0 then
      local base = level * LEVEL
      local found = redis.call('ZRANGEBYSCORE', key.due, base, base + now,
        'WITHSCORES', 'LIMIT', 0, max - #ids)
      for i = 1, #found, 2 do
        local n = #ids + 1
        members[n], ids[n] = found[i], sub(found[i], 9)
        due[n] = tonumber(found[i + 1]) - base
      end
    end
  end
  return ids, members, due
end

-- The details of a message with its next lease.
local function lease_details(record, entry, due)
  if entry then
    local epoch = struct.unpack('>I8', entry, 3) + 1
    return '\1\0' .. struct.pack('>I8', epoch) .. claim_id .. sub(entry, 27, 47)
      .. struct.pack('>I6', due) .. sub(entry, 54)
  end
  return '\1\0' .. struct.pack('>I8', 1) .. claim_id .. sub(record, 1, 8) .. sub(record, 21, 33)
    .. struct.pack('>I6', due) .. '\0\0\0\0\0\0\0'
end

-- Leases ready messages, and buries those that have expired or cannot be read.
local function take()
  local ids, members, due = ready_messages()
  if #ids == 0 then
    return
  end
  local records = redis.call('HMGET', key.records, unpack(ids))
  local stored = redis.call('HMGET', key.details, unpack(ids))
  local journal_count = redis.call('HLEN', key.journal_new)
  redis.call('ZCARD', key.dead)
  local leased, dead, details, stubs, removed = {}, {}, {}, {}, {}
  local journal, bytes = {claim_id}, 0
  for i, id in ipairs(ids) do
    local record, member, entry = records[i], members[i], stored[i]
    local readable = readable_record(record) and sub(record, 1, 8) == sub(member, 1, 8)
      and is_id(id) and (not entry or readable_details(entry) and byte(entry) == WAITING_PHASE
        and belong_together(entry, sub(record, 1, 8), record))
    local whole = false
    if readable then
      local headers, payload = content_lengths(record)
      bytes = bytes + headers + payload
      if bytes > max_bytes and delivered > 0 then
        break
      end
      whole = whole_record(id, record)
    end
    removed[#removed + 1] = member
    local left, stub
    if whole and struct.unpack('>I6', record, 15) <= now then
      left = entry and read_details(entry) or new_details(record)
      left.due = due[i]
      bury(left, EXPIRED)
      left = write_details(left)
      control.expired = control.expired + 1
    elseif whole then
      leased[#leased + 1] = deadline
      leased[#leased + 1] = member
      journal[#journal + 1] = string.char(#id) .. id
      details[#details + 1] = id
      details[#details + 1] = lease_details(record, entry, due[i])
      deliver(id, whole, details[#details], deadline)
    elseif is_id(id) and not stands_elsewhere(id, member, record, true, false) then
      left, stub = remains(member, record, due[i])
    end
    if left then
      details[#details + 1] = id
      details[#details + 1] = left
      dead[#dead + 1] = now
      dead[#dead + 1] = member
    end
    if stub then
      stubs[#stubs + 1] = id
      stubs[#stubs + 1] = stub
    end
  end
  begin_writes()
  if #stubs > 0 then
    redis.call('HSET', key.records, unpack(stubs))
  end
  if #details > 0 then
    redis.call('HSET', key.details, unpack(details))
  end
  if #dead > 0 then
    redis.call('ZADD', key.dead, unpack(dead))
  end
  if #leased > 0 then
    redis.call('ZADD', key.leased, unpack(leased))
  end
  redis.call('ZREM', key.due, unpack(removed))
  changed = true
  if delivered == 0 then
    return
  end
  local age = now - control.journal_since
  if age >= 2 * JOURNAL_RETENTION then
    redis.call('UNLINK', key.journal_new, key.journal_old)
    control.journal_since, journal_count = now, 0
  elseif age >= JOURNAL_RETENTION or journal_count >= MAX_JOURNAL then
    redis.call('UNLINK', key.journal_old)
    if journal_count > 0 then
      redis.call('RENAME', key.journal_new, key.journal_old)
      redis.call('PEXPIRE', key.journal_old, JOURNAL_RETENTION)
    end
    control.journal_since, journal_count = now, 0
  end
  redis.call('HSET', key.journal_new, consumer, table.concat(journal))
  if journal_count == 0 then
    redis.call('PEXPIRE', key.journal_new, 2 * JOURNAL_RETENTION)
  end
end

-- The earliest due instant or end of a lease; nil if there is none.
local function next_claimable()
  local next
  for level = 0, 3 do
    if bit.band(control.levels, 2 ^ level) ~= 0 then
      local base = level * LEVEL
      local first = redis.call('ZRANGEBYSCORE', key.due, base, base + MAX_TIMESTAMP,
        'WITHSCORES', 'LIMIT', 0, 1)
      if first[2] then
        next = math.min(next or NEVER, tonumber(first[2]) - base)
      end
    end
  end
  local first = redis.call('ZRANGEBYSCORE', key.leased, '-inf', MAX_TIMESTAMP,
    'WITHSCORES', 'LIMIT', 0, 1)
  if first[2] then
    next = math.max(0, math.min(next or NEVER, tonumber(first[2])))
  end
  if not next and control.levels ~= 15 and redis.call('ZCARD', key.due) > 0 then
    control.levels, changed, next = 15, true, now -- the levels in use were not known
  end
  return next
end

redis.call('LLEN', key.bell)
local entry = journaled()
if entry then
  claimed_before(entry)
else
  reclaim()
  if control.paused == 0 then
    take()
  end
end

local next = control.paused == 0 and next_claimable() or nil
local more = next and next <= now
results[4] = more and 1 or 0
results[5] = next or -1

-- Whoever got less than it asked for goes to sleep until `next`. Whoever is full does not, so the
-- next message has to ring for somebody else; and what is left over, or comes soon, rings at once.
local sleeps = not more and delivered < max
local armed, armed_until = 0, 0
if sleeps then
  armed, armed_until = next or NEVER, now + SAFETY_POLL
end
local hands_on = more or not sleeps and next and next < now + SAFETY_POLL
-- An idle process that only comes by does not write each time.
local fresh = armed == control.armed and math.abs(armed_until - control.armed_until) <= 10000
if changed or hands_on or not fresh then
  control.armed, control.armed_until = armed, armed_until
  begin_writes()
  if hands_on then
    push_bell()
  end
  commit(changed)
end
results[3] = control.revision
return results
