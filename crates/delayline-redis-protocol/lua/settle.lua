-- State::settle. ARGV: now, the ids, then for each the lease that ends: epoch 8 | claim id 16, and
-- unless it is acked
--   kind 1 (1 retry, 2 snooze, 3 release, 4 reject) | delay 6 | error text.
-- Results: the status of a message whose lease has ended; -2 stale, -3 missing; -1 already done, and
-- the message was given back; -10 - status: already done, and that was the message's end.

--@include prelude.lua
--@include writing.lua
--@include details.lua
--@include finishing.lua

local ACK, RETRY, SNOOZE, RELEASE, REJECT = 0, 1, 2, 3, 4
local ALREADY_DONE, STALE, MISSING = -1, -2, -3
local ALREADY_ENDED = -10 -- minus the status
local LEASE_BYTES = 24
local ACKED_BYTE, CANCELLED_BYTE = '\5', '\6' -- as in `finished`

local count = (#ARGV - 1) / 2
local stored = redis.call('HMGET', key.details, unpack(ARGV, 2, 1 + count))

-- `gone` are the messages that are finished, `ended` the members whose leases have ended.
local results, gone, finished, ended, others = {0, now, 0}, {}, {}, {}, {}
local details, due, dead, ring, gone_count = {}, {}, {}, false, 0

for i = 1, count do
  local id, item, entry = ARGV[1 + i], ARGV[1 + count + i], stored[i]
  local is_ack = #item == LEASE_BYTES
  local lease = is_ack and item or sub(item, 1, LEASE_BYTES)
  -- What else stands in the details of a message that goes does not matter.
  local phase = entry and #entry >= DETAILS_BYTES and sub(entry, 3, 26) == lease and byte(entry)
  if phase == CANCELLING_PHASE or is_ack and phase == LEASED_PHASE then
    local status = CANCELLED_BYTE
    if is_ack then
      status, results[3 + i], control.acked = ACKED_BYTE, ACKED, control.acked + 1
    else
      results[3 + i], control.cancelled = CANCELLED, control.cancelled + 1
    end
    gone_count = gone_count + 1
    gone[gone_count], ended[gone_count] = id, sub(entry, 27, 34) .. id
    finished[2 * gone_count - 1] = id
    finished[2 * gone_count] = status .. sub(entry, 35, 42) .. lease
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
  local function without_details(i, lease, kind)
    if redis.call('HEXISTS', key.records, ARGV[1 + i]) == 1 then
      return STALE
    end
    local past = finished_of(1 + i, 1 + i)[1]
    if past and sub(past, 10) == lease and (kind == ACK) == (byte(past) == ACKED) then
      return ALREADY_ENDED - byte(past)
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
    local entry, item, status = stored[i], ARGV[1 + count + i], STALE
    local lease, kind = sub(item, 1, LEASE_BYTES), byte(item, LEASE_BYTES + 1) or ACK
    if not entry then
      status = without_details(i, lease, kind)
    elseif readable_details(entry) and sub(entry, 3, 26) == lease then
      if byte(entry) == LEASED_PHASE then
        status = give_back(ARGV[1 + i], entry, item, kind)
      elseif kind == byte(entry, 2) and kind ~= ACK then
        local reason = byte(entry) == DEAD_PHASE and byte(entry, 58)
        local died = reason == MAX_FAILURES or reason == REJECTED
        status = died and ALREADY_ENDED - DEAD or ALREADY_DONE
      end
    end
    results[3 + i] = status
  end

  -- Whatever key holds something else, that comes out before the first write.
  if #due > 0 then
    redis.call('ZCARD', key.due)
    --@ask HSET details, ZADD due
    ring = rings(first_due)
  end
  if #dead > 0 then
    redis.call('ZCARD', key.dead)
    --@ask HSET details, ZADD dead
  end
end

if #ended > 0 then
  redis.call('ZCARD', key.leased)
  --@ask ZREM leased, SET control, HGET records
  local finished_count = gone_count > 0 and look_at_finished()
  begin_writes()
  if gone_count > 0 then
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
  local ended_count = redis.call('ZREM', key.leased, unpack(ended))
  if gone_count > 0 and ended_count < #ended then
    --@include newer.lua
  end
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
