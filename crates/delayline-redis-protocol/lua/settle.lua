-- State::settle. ARGV: now, then for each settlement the id and
--   epoch 8 | claim id 16 | kind 1 (0 ack, 1 retry, 2 snooze, 3 release, 4 reject) | delay 6
--   | error text.
-- Results: the status of a message whose lease has ended; -1 already done, -2 stale, -3 missing.

local ACK, RETRY, SNOOZE, RELEASE, REJECT = 0, 1, 2, 3, 4
local ALREADY_DONE, STALE, MISSING = -1, -2, -3

local ids = {}
for i = 2, #ARGV, 2 do
  ids[#ids + 1] = ARGV[i]
end
local stored = redis.call('HMGET', key.details, unpack(ids))
local finished_count = redis.call('HLEN', key.finished_new)
redis.call('ZCARD', key.leased)
redis.call('HLEN', key.records)

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

local results = {0, now, 0}
local finished, gone, ended = {}, {}, {}
local details, due, dead, first_due = {}, {}, {}, NEVER

local function settle(id, entry, item)
  local lease, kind = sub(item, 1, 24), byte(item, 25)
  if not entry then
    return without_details(id, lease, kind)
  end
  if not readable_details(entry) or sub(entry, 3, 26) ~= lease then
    return STALE
  end
  local phase = byte(entry)
  if phase ~= LEASED_PHASE and phase ~= CANCELLING_PHASE then
    return kind == byte(entry, 2) and kind ~= 0 and ALREADY_DONE or STALE
  end
  local member = sub(entry, 27, 34) .. id
  ended[#ended + 1] = member
  if kind == ACK or phase == CANCELLING_PHASE then
    local status = kind == ACK and ACKED or CANCELLED
    finished[#finished + 1] = id
    finished[#finished + 1] = string.char(status) .. sub(entry, 35, 42) .. lease
    gone[#gone + 1] = id
    if status == ACKED then
      control.acked = control.acked + 1
    else
      control.cancelled = control.cancelled + 1
    end
    return status
  end
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
  details[#details + 1] = id
  details[#details + 1] = write_details(d)
  if d.phase == DEAD_PHASE then
    dead[#dead + 1] = now
    dead[#dead + 1] = member
    return DEAD
  end
  due[#due + 1] = due_score(d.level, d.due)
  due[#due + 1] = member
  first_due = math.min(first_due, d.due)
  return d.due > now and SCHEDULED or READY
end

for i, id in ipairs(ids) do
  results[3 + i] = settle(id, stored[i], ARGV[2 * i + 1])
end

if #ended > 0 then
  redis.call('ZCARD', key.due)
  redis.call('ZCARD', key.dead)
  local large_contents = redis.call('HLEN', key.contents)
  local ring = #due > 0 and rings(first_due)
  begin_writes()
  if #finished > 0 then
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
    delete_messages(gone, large_contents)
  end
  if ring then
    push_bell()
  end
  commit(true)
end
results[3] = control.revision
return results
