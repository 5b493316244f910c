-- State::claim. ARGV: now, consumer, claim id, max, lease in ms, most content bytes, most leases
-- to take back, most messages to bury.
-- Results: more (0 or 1), next instant or -1, then for each delivery its id, its record, and its due
-- instant, if this call leases it for the first time, else the deadline in 6 bytes and its details;
-- then for each message that this call buried the reason, a number, and its id.

--@include prelude.lua
--@include writing.lua
--@include records.lua
--@include record_reading.lua
--@include details.lua

local SAFETY_POLL = 60000 -- every sleeper comes back within this time
local JOURNAL_RETENTION, MAX_JOURNAL = 600000, 1000
local FIRST_LEASE = '\1\0\0\0\0\0\0\0\0\1' -- leased, not settled, epoch 1
local STEADY = 10000 -- armings that differ by less are the same
local MAX_LOOK = 1000 -- messages that are read at once

local claim_id, deadline = ARGV[3], after(tonumber(ARGV[5]))
local results, delivered, changed = {0, now, 0, 0, -1}, 0, false
local deaths = {} -- reason, id, reason, id, and so on

-- When the first lease ends; nil if there is none.
local function first_end_of_lease()
  local first = tonumber(redis.call('ZRANGE', key.leased, '0', '0', 'WITHSCORES')[2] or NEVER)
  return first <= MAX_TIMESTAMP and math.max(0, first) or nil
end

-- Up to `wanted` more ready messages, ids, members and due instants, and the due instant of the first
-- message that is left.
local seen = {} -- how many of each level
local function ready_messages(wanted)
  local ids, members, due, count, first_left = {}, {}, {}, 0, NEVER
  -- Many are due at the same time, and to read a score takes long.
  local levels, due_of = control.uses, {}
  for level = 0, 3 do
    local is_used = levels % 2
    levels = (levels - is_used) / 2
    if is_used == 1 then
      local base, room, before = level * LEVEL, wanted - count, seen[level] or 0
      local last = format('%d', base + (room > 0 and now or MAX_TIMESTAMP))
      local found = redis.call('ZRANGEBYSCORE', key.due, format('%d', base), last,
        'WITHSCORES', 'LIMIT', format('%d', before), format('%d', room + 1))
      seen[level] = before + math.min(#found / 2, room)
      for i = 1, math.min(#found, 2 * room), 2 do
        count = count + 1
        members[count], ids[count] = found[i], sub(found[i], 9)
        local score = found[i + 1]
        due_of[score] = due_of[score] or tonumber(score) - base
        due[count] = due_of[score]
      end
      local left = found[2 * room + 2]
      if not left and room > 0 then
        left = redis.call('ZRANGEBYSCORE', key.due, '(' .. last,
          format('%d', base + MAX_TIMESTAMP), 'WITHSCORES', 'LIMIT', '0', '1')[2]
      end
      if left then
        first_left = math.min(first_left, tonumber(left) - base)
      end
    end
  end
  return ids, members, due, first_left
end

-- journal[consumer]: claim id 16 | count of ids 2 | their lengths, 1 each | the ids.
local journal_age = now - control.journal_since
local younger = redis.call('HGET', key.journal_new, ARGV[2])
local journaled = journal_age < 2 * JOURNAL_RETENTION and younger
if not journaled and journal_age < JOURNAL_RETENTION then
  journaled = redis.call('HGET', key.journal_old, ARGV[2])
end
local is_repeated = journaled and sub(journaled, 1, 16) == claim_id

local lease_end = first_end_of_lease()
-- The due instant of the first message that stays where it is; nil if the queue is paused.
local first_left
-- What is to be written for the messages that are taken.
local removed, leased, details, dead, stubs, taken, lengths = {}, {}, {}, {}, {}, {}, {}

if is_repeated then
  --@include replay.lua
elseif lease_end and lease_end <= now then
  --@include reclaim.lua
  changed, lease_end = true, first_end_of_lease()
end

if control.paused == 0 and is_repeated then
  local _
  _, _, _, first_left = ready_messages(0)
elseif control.paused == 0 then
  local max, max_bytes, max_buried = tonumber(ARGV[4]), tonumber(ARGV[6]), tonumber(ARGV[8])
  local bytes, looked_at, deadline_text = 0, 0, format('%d', deadline)
  -- Details of a first lease, in front of the record's part and, by due instant, behind it.
  local first_lease, details_end = FIRST_LEASE .. claim_id, {}
  local wanted = max
  repeat
    local ids, members, due
    ids, members, due, first_left = ready_messages(wanted)
    local records, stored = {}, {}
    if #ids > 0 then
      records = redis.call('HMGET', key.records, unpack(ids))
      stored = redis.call('HMGET', key.details, unpack(ids))
    end
    local left_from
    for i, id in ipairs(ids) do
      if delivered == max or looked_at - delivered == max_buried then
        left_from = i
        break
      end
      local record, member, entry = records[i], members[i], stored[i]
      local sequence, form, whole, ends_as = sub(member, 1, 8), byte(record or '', 23), false, nil
      -- As read_record answers for a usual one; a call for each message shows in the time of a claim.
      local content, limits, expires_at = LEAST_RECORD_BYTES + 1, DEFAULT_LIMITS, NEVER
      if not form or form >= LIMITED or byte(record, 9) >= LATE then
        content, limits, expires_at = read_record(record)
      end
      local fits = content and #id > 0 and #id <= 128 and sub(record, 1, 8) == sequence
      if fits and entry and not (readable_details(entry) and byte(entry) == WAITING_PHASE
        and sub(entry, 27, 34) == sequence and sub(entry, 35, 47) == fixed_of(record, limits)) then
        --@include half.lua
      end
      if fits and expires_at > now then
        local headers, payload = 0, #record - content + 1
        if form >= HEADED then
          headers, payload = content_lengths(record, content)
        end
        bytes = bytes + headers + payload
        if bytes > max_bytes and delivered > 0 then
          left_from = i
          break
        end
        whole = form < LARGE and record or whole_record(id, record, content)
      end
      looked_at = looked_at + 1
      removed[looked_at] = member
      if whole then
        local its_details, due_at, answer = nil, due[i], due[i]
        if entry then
          its_details = '\1\0' .. struct.pack('>I8', struct.unpack('>I8', entry, 3) + 1) .. claim_id
            .. sub(entry, 27, 47) .. struct.pack('>I6', due_at) .. sub(entry, 54)
          answer = struct.pack('>I6', deadline) .. its_details
        else
          local rest = details_end[due_at]
          if not rest then
            rest = struct.pack('>I6', due_at) .. '\0\0\0\0\0\0\0'
            details_end[due_at] = rest
          end
          if form < LIMITED then
            its_details = first_lease .. sequence .. sub(record, 15, 23) .. DEFAULT_LIMITS .. rest
          else
            its_details = first_lease .. sequence .. fixed_of(record, limits) .. rest
          end
        end
        local n, m = #leased, #details
        leased[n + 1], leased[n + 2] = deadline_text, member
        details[m + 1], details[m + 2] = id, its_details
        delivered = delivered + 1
        taken[delivered], lengths[delivered] = id, #id
        n = 3 * delivered
        results[n + 3], results[n + 4], results[n + 5] = id, whole, answer
      else
        --@include burial.lua
      end
    end
    if left_from then
      for left = left_from, #ids do
        first_left = math.min(first_left, due[left])
      end
    end
    -- For each that is buried the claim looks at another one, and then at more at once.
    local buried = looked_at - delivered
    local is_over = left_from or #ids < wanted or delivered == max or buried == max_buried
    wanted = math.min(max - delivered + buried, MAX_LOOK)
  until is_over
end

-- The earliest due instant or end of a lease, of what is there after the writes.
local next
if first_left then
  if delivered > 0 and not is_repeated then
    lease_end = math.min(lease_end or NEVER, deadline)
  end
  next = math.min(first_left, lease_end or NEVER)
  if next == NEVER then
    next = nil
    if control.uses ~= USES_ALL and redis.call('ZCARD', key.due) > #removed then
      control.uses, changed, next = USES_ALL, true, now -- which levels are used was not known
    end
  end
end
local more = next and next <= now
results[4] = more and 1 or 0
results[5] = next or -1

-- Whoever got less than it asked for goes to sleep until `next`. Whoever is full does not, so the
-- next message has to ring for somebody else; and what is left over, or comes soon, rings at once.
local sleeps = not more and delivered < tonumber(ARGV[4])
local armed, armed_until = 0, 0
if sleeps then
  armed, armed_until = next or NEVER, now + SAFETY_POLL
end
local hands_on = more or not sleeps and next and next < now + SAFETY_POLL
local silent = hands_on and redis.call('LLEN', key.bell) == 0
--@ask SET control
if silent then
  --@ask LPUSH bell
end

if #removed > 0 then
  local journal_count = younger and 1 or redis.call('HLEN', key.journal_new)
  local makes_room = journal_age >= JOURNAL_RETENTION or journal_count >= MAX_JOURNAL
  --@ask ZREM due
  if delivered > 0 then
    --@ask HSET details, ZADD leased, HSET journal_new
    if makes_room or journal_count == 0 then
      --@ask UNLINK journal_new, UNLINK journal_old, RENAME journal_new, RENAME journal_old
      --@ask PEXPIRE journal_new, PEXPIRE journal_old
    end
  end
  begin_writes()
  if #details > 0 then
    redis.call('HSET', key.details, unpack(details))
  end
  if #leased > 0 then
    redis.call('ZADD', key.leased, unpack(leased))
  end
  if #dead > 0 then
    redis.call('ZADD', key.dead, unpack(dead))
  end
  if #stubs > 0 then
    redis.call('HSET', key.records, unpack(stubs))
  end
  redis.call('ZREM', key.due, unpack(removed))
  changed = true
  if delivered > 0 then
    if journal_age >= 2 * JOURNAL_RETENTION then
      redis.call('UNLINK', key.journal_new, key.journal_old)
      control.journal_since, journal_count = now, 0
    elseif makes_room then
      redis.call('UNLINK', key.journal_old)
      if journal_count > 0 then
        redis.call('RENAME', key.journal_new, key.journal_old)
        redis.call('PEXPIRE', key.journal_old, JOURNAL_RETENTION)
      end
      control.journal_since, journal_count = now, 0
    end
    redis.call('HSET', key.journal_new, ARGV[2], claim_id .. struct.pack('>I2', delivered)
      .. string.char(unpack(lengths)) .. table.concat(taken))
    if journal_count == 0 then
      redis.call('PEXPIRE', key.journal_new, 2 * JOURNAL_RETENTION)
    end
  end
end
-- An idle process that only comes by does not write each time.
local fresh = armed == control.armed and math.abs(armed_until - control.armed_until) <= STEADY
if changed or hands_on or not fresh then
  control.armed, control.armed_until = armed, armed_until
  begin_writes()
  if silent then
    redis.call('LPUSH', key.bell, '1')
  end
  commit(changed)
end
for i = 1, #deaths do
  results[#results + 1] = deaths[i]
end
results[3] = control.revision
return results
