-- State::settle. ARGV: now, then for each settlement the id and
--   epoch 8 | claim id 16 | kind 1 (0 ack, 1 retry, 2 snooze, 3 release, 4 reject) | delay 6
--   | error text.
-- Results: the status of a message whose lease has ended; -1 already done, -2 stale, -3 missing.

--@include prelude.lua
--@include details.lua
--@include finishing.lua

local ACK, RETRY, SNOOZE, RELEASE, REJECT = 0, 1, 2, 3, 4
local ALREADY_DONE, STALE, MISSING = -1, -2, -3

local count, ids = (#ARGV - 1) / 2, {}
for i = 1, count do
  ids[i] = ARGV[2 * i]
end
local stored = redis.call('HMGET', key.details, unpack(ids))

-- `gone` are the messages that are finished, `ended` the members whose leases have ended.
local results, gone, finished, ended, others = {0, now, 0}, {}, {}, {}, {}
local details, due, dead, ring = {}, {}, {}, false

for i = 1, count do
  local id, item, entry = ids[i], ARGV[2 * i + 1], stored[i]
  local phase = entry and sub(item, 1, 24) == sub(entry, 3, 26) and readable_details(entry)
    and byte(entry)
  if (phase == LEASED_PHASE or phase == CANCELLING_PHASE)
    and (byte(item, 25) == ACK or phase == CANCELLING_PHASE) then
    local status = CANCELLED
    if byte(item, 25) == ACK then
      status, control.acked = ACKED, control.acked + 1
    else
      control.cancelled = control.cancelled + 1
    end
    local n = #gone
    gone[n + 1], ended[n + 1] = id, sub(entry, 27, 34) .. id
    finished[2 * n + 1] = id
    finished[2 * n + 2] = string.char(status) .. sub(entry, 35, 42) .. sub(item, 1, 24)
    results[3 + i] = status
  else
    others[#others + 1] = i
  end
end

if #others > 0 then
  --@include bell.lua
  --@include scheduling.lua
  --@include details_writing.lua
  --@include finished.lua

  -- For an id without details: it was never claimed, or it is gone.
  local function without_details(id, lease, kind)
    if redis.call('HEXISTS', key.records, id) == 1 then
      return STALE
    end
    local past = finished_of({id})[1]
    if past and sub(past, 10) == lease and (kind == ACK) == (byte(past) == ACKED) then
      return ALREADY_DONE
    end
    return MISSING
  end

  local first_due = NEVER

  -- Gives a message back, or buries it.
  local function give_back(id, entry, item, kind)
    local d = read_details(entry)
    d.settled, d.phase = kind, WAITING_PHASE
    local delay, text = struct.unpack('>I6', item, 26), sub(item, 32)
    if kind == SNOOZE then
      d.due = after(delay)
    elseif kind == RETRY then
      d.failures = d.failures + 1
      note_error(d, text)
      if d.failures >= d.max_failures then
        bury(d, MAX_FAILURES)
      else
        d.due = after(delay)
      end
    elseif kind == REJECT then
      note_error(d, text)
      bury(d, REJECTED)
    end
    local member = d.sequence .. id
    ended[#ended + 1] = member
    details[#details + 1] = id
    details[#details + 1] = write_details(d)
    if d.phase == DEAD_PHASE then
      dead[#dead + 1] = format('%d', now)
      dead[#dead + 1] = member
      return DEAD
    end
    due[#due + 1] = due_score(d.level, d.due)
    due[#due + 1] = member
    first_due = math.min(first_due, d.due)
    return d.due > now and SCHEDULED or READY
  end

  for _, i in ipairs(others) do
    local id, entry, item = ids[i], stored[i], ARGV[2 * i + 1]
    local lease, kind, status = sub(item, 1, 24), byte(item, 25), STALE
    if not entry then
      status = without_details(id, lease, kind)
    elseif readable_details(entry) and sub(entry, 3, 26) == lease then
      if byte(entry) == LEASED_PHASE then
        status = give_back(id, entry, item, kind)
      elseif kind == byte(entry, 2) and kind ~= ACK then
        status = ALREADY_DONE
      end
    end
    results[3 + i] = status
  end

  -- Whatever key holds something else, that comes out before the first write.
  if #due > 0 then
    redis.call('ZCARD', key.due)
    ring = rings(first_due)
  end
  if #dead > 0 then
    redis.call('ZCARD', key.dead)
  end
end

if #ended > 0 then
  redis.call('ZCARD', key.leased)
  local finished_count = #gone > 0 and look_at_finished()
  begin_writes()
  if #gone > 0 then
    remember_finished(finished, finished_count)
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
  redis.call('ZREM', key.leased, unpack(ended))
  if #gone > 0 then
    delete_messages(gone)
  end
  if ring then
    redis.call('LPUSH', key.bell, '1')
  end
  commit(true)
end
results[3] = control.revision
return results
