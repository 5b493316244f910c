-- State::enqueue. ARGV: now, then for each message its id and
--   flags 1 (1: reuse a finished id, 2: it expires) | due instant 7 | expiry instant 7
--   | digest 8 | level 1 | max_failures 2 | max_crashes 2 | headers length 2 | headers | payload.
-- Results: the due instant of a created message; minus the status of a duplicate; minus 10 minus
-- the status of a conflict.

local ids = {}
for i = 2, #ARGV, 2 do
  ids[#ids + 1] = ARGV[i]
end
local records = redis.call('HMGET', key.records, unpack(ids))
local finished = finished_of(ids)
redis.call('ZCARD', key.due)

local function status_of(id, record)
  local details = redis.call('HGET', key.details, id)
  local phase = details and byte(details) or WAITING_PHASE
  if phase == DEAD_PHASE then
    return DEAD
  elseif phase ~= WAITING_PHASE then
    return LEASED
  end
  local score = tonumber(redis.call('ZSCORE', key.due, member_of(record, id)) or 0)
  return score % LEVEL > now and SCHEDULED or READY
end

local results, new_records, new_due, reused = {0, now, 0}, {}, {}, {}
local new_contents = {}
local first_due = NEVER
for i, id in ipairs(ids) do
  local item = ARGV[2 * i + 1]
  local flags = byte(item)
  local known_digest, status
  if records[i] then
    known_digest, status = digest_of(records[i]), status_of(id, records[i])
  elseif finished[i] then
    if flags % 2 == 1 then
      reused[#reused + 1] = id
    else
      known_digest, status = sub(finished[i], 2, 9), byte(finished[i])
    end
  end
  if status then
    results[3 + i] = known_digest == sub(item, 16, 23) and -status or -10 - status
  else
    local due, expires_at = instant(item, 2), NEVER
    if flags >= 2 then
      expires_at = instant(item, 9)
    end
    control.sequence = control.sequence + 1
    local level, sequence = byte(item, 24), struct.pack('>I8', control.sequence)
    local head = sequence .. struct.pack('>I6I6', now, expires_at)
    local n, content_bytes = #new_records, #item - 30
    new_records[n + 1] = id
    if content_bytes <= SMALL then
      new_records[n + 2] = head .. sub(item, 16)
    else
      local headers = struct.unpack('>I2', item, 29)
      new_records[n + 2] = head .. sub(item, 16, 28)
        .. struct.pack('>I2I2I4', LARGE, headers, content_bytes - headers)
      new_contents[#new_contents + 1] = id
      new_contents[#new_contents + 1] = sub(item, 29)
    end
    new_due[n + 1] = due_score(level, due)
    new_due[n + 2] = sequence .. id
    first_due = math.min(first_due, due)
    results[3 + i] = due
  end
end

if #new_records > 0 then
  local ring = rings(first_due)
  redis.call('HLEN', key.contents)
  if #reused > 0 then
    redis.call('HLEN', key.finished_new)
    redis.call('HLEN', key.finished_old)
  end
  redis.call('HSET', key.records, unpack(new_records))
  if #new_contents > 0 then
    redis.call('HSET', key.contents, unpack(new_contents))
  end
  redis.call('ZADD', key.due, unpack(new_due))
  if #reused > 0 then
    redis.call('HDEL', key.finished_new, unpack(reused))
    redis.call('HDEL', key.finished_old, unpack(reused))
  end
  if ring then
    push_bell()
  end
  commit(true)
end
results[3] = control.revision
return results
