-- State::check. ARGV: now, limit, and the position to go on from, if any: index, instant, sequence
-- in two halves.
-- Results: examined, 1 if there may be more, the index, instant and halves of the sequence of the
-- last entry, then for each finding its kind and two values:
--   1 malformed entry: index, ''         4 in two states: id, ''
--   2 missing record: id, ''             5 missing details: id, ''
--   3 wrong record: id, ''               6 record count: records, indexed
--                                        7 conservation: enqueued, accounted

local limit, position = tonumber(ARGV[2]), position_from(3)
local results, examined = {0, now, control.revision, 0, 0, 0, 0, 0, 0}, 0

local function find(kind, first, second)
  local n = #results
  results[n + 1], results[n + 2], results[n + 3] = kind, first, second
end

local function in_another(index, member)
  return index ~= due and redis.call('ZSCORE', key.due, member)
    or index ~= leased and redis.call('ZSCORE', key.leased, member)
    or index ~= dead and redis.call('ZSCORE', key.dead, member)
end

local function has_content(id, record)
  if struct.unpack('>I2', record, 34) ~= LARGE then
    return true
  end
  local headers, payload = content_lengths(record)
  return redis.call('HSTRLEN', key.contents, id) == 2 + headers + payload
end

local function examine(index, number, member)
  local id = sub(member, 9)
  if #member < 9 or #id > 128 then
    return find(1, number, '')
  end
  local record, details =
    redis.call('HGET', key.records, id), redis.call('HGET', key.details, id)
  if not readable_record(record) or not has_content(id, record) then
    return find(2, id, '')
  elseif member_of(record, id) ~= member or index == due and level_of(record) ~= number then
    return find(3, id, '')
  elseif in_another(index, member) then
    return find(4, id, '')
  end
  local phase = WAITING_PHASE
  if details then
    phase = readable_details(details) and byte(details) or -1
  end
  local fits = index == due and phase == WAITING_PHASE
    or index == leased and (phase == LEASED_PHASE or phase == CANCELLING_PHASE)
    or index == dead and phase == DEAD_PHASE
  if not fits then
    find(5, id, '')
  end
end

-- How many entries have an instant that can be.
local possible = {}

local function check(index, number, base)
  possible[index] = (possible[index] or 0) + index.count(base, base + MAX_TIMESTAMP)
  if position and position.index > number or examined >= limit then
    return
  end
  local after_position = position and position.index == number and position or nil
  local found = walk(index, base, 0, MAX_TIMESTAMP, after_position, limit - examined)
  for i = 1, #found, 2 do
    local member = found[i]
    examine(index, number, member)
    examined = examined + 1
    results[6], results[7] = number, tonumber(found[i + 1]) - base
    results[8], results[9] = sequence_of(member)
  end
end

for level = 0, 3 do
  check(due, level, level * LEVEL)
end
check(leased, 4, 0)
check(dead, 5, 0)
results[4] = examined
results[5] = examined == limit and 1 or 0

if examined < limit then
  local indexed = 0
  for number, index in pairs{[0] = due, [4] = leased, [5] = dead} do
    local entries = index.count('-inf', '+inf')
    if entries ~= possible[index] then
      find(1, number, '')
    end
    indexed = indexed + entries
  end
  local records = redis.call('HLEN', key.records)
  if records ~= indexed then
    find(6, records, indexed)
  end
  local accounted = indexed + control.acked + control.cancelled + control.purged
  if accounted ~= control.sequence then
    find(7, control.sequence, accounted)
  end
end
return results
