-- State::list. ARGV: now, status, limit, and the position to go on from: index, instant and
-- sequence, or nothing.
-- Results: 1 if there may be more, then for each message its index, member, the first bytes of
-- its record, the record's length, details ('' if there are none) and the instant of its index.

local status, limit = tonumber(ARGV[2]), tonumber(ARGV[3])
local after_index, after_instant = tonumber(ARGV[4]), tonumber(ARGV[5])
local after_sequence = tonumber(ARGV[6])
local results, listed = {0, now, control.revision, 0}, 0

local function list(index_number, index, base, from, to)
  if after_index and after_index > index_number or listed >= limit then
    return
  end
  local position
  if after_index == index_number then
    position = {score = base + after_instant, sequence = after_sequence}
  end
  local found = walk(index, from, to, position, limit - listed)
  for i = 1, #found, 2 do
    local member, score = found[i], tonumber(found[i + 1])
    local id = sub(member, 9)
    local record = redis.call('HGET', key.records, id) or ''
    local n = #results
    results[n + 1], results[n + 2] = index_number, member
    results[n + 3], results[n + 4] = sub(record, 1, RECORD_BYTES), #record
    results[n + 5] = redis.call('HGET', key.details, id) or ''
    results[n + 6] = score - base
    listed = listed + 1
  end
end

if status == LEASED then
  list(4, leased, 0, 0, NEVER)
elseif status == DEAD then
  list(5, dead, 0, 0, NEVER)
else
  for level = 0, 3 do
    local base = level * LEVEL
    if status == READY then
      list(level, due, base, base, base + now)
    else
      list(level, due, base, base + now + 1, base + NEVER)
    end
  end
end
results[4] = listed == limit and 1 or 0
return results
