-- State::check. ARGV: now, limit, and the position to go on from: index, instant and sequence, or
-- nothing.
-- Results: examined, 1 if there may be more, the index, instant and sequence of the last entry,
-- then for each finding its kind and two values:
--   1 malformed entry: index, ''         4 in two states: id, ''
--   2 missing record: id, ''             5 missing details: id, ''
--   3 wrong record: id, ''               6 record count: records, indexed
--                                        7 conservation: enqueued, accounted

local limit = tonumber(ARGV[2])
local after_index, after_instant = tonumber(ARGV[3]), tonumber(ARGV[4])
local after_sequence = tonumber(ARGV[5])
local results, examined = {0, now, control.revision, 0, 0, 0, 0, '0'}, 0

local function find(kind, first, second)
  local n = #results
  results[n + 1], results[n + 2], results[n + 3] = kind, first, second
end

local function in_another(index, member)
  return index ~= due and redis.call('ZSCORE', key.due, member)
    or index ~= leased and redis.call('ZSCORE', key.leased, member)
    or index ~= dead and redis.call('ZSCORE', key.dead, member)
end

local function examine(index, index_number, member)
  local id = sub(member, 9)
  if #member < 9 or #id > 128 then
    return find(1, index_number, '')
  end
  local record, details =
    redis.call('HGET', key.records, id), redis.call('HGET', key.details, id)
  if not readable_record(record) then
    return find(2, id, '')
  elseif member_of(record, id) ~= member
    or index == due and level_of(record) ~= index_number then
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

-- `number` is the index's number; for `due` the level is in the score.
local function check(index, number, last_number)
  if after_index and after_index > last_number or examined >= limit then
    return
  end
  local position
  if after_index and after_index >= number then
    position = {
      score = (after_index - number) * LEVEL + after_instant, sequence = after_sequence,
    }
  end
  local found = walk(index, 0, 4 * LEVEL, position, limit - examined)
  for i = 1, #found, 2 do
    local member, score = found[i], tonumber(found[i + 1])
    local level = math.floor(score / LEVEL)
    examine(index, number + level, member)
    examined = examined + 1
    results[6], results[7] = number + level, score - level * LEVEL
    results[8] = #member >= 8 and format('%.0f', (struct.unpack('>I8', member))) or '0'
  end
end

check(due, 0, 3)
check(leased, 4, 4)
check(dead, 5, 5)
results[4] = examined
results[5] = examined == limit and 1 or 0

if examined < limit then
  local records = redis.call('HLEN', key.records)
  local indexed = redis.call('ZCARD', key.due) + redis.call('ZCARD', key.leased)
    + redis.call('ZCARD', key.dead)
  if records ~= indexed then
    find(6, records, indexed)
  end
  local accounted = indexed + control.acked + control.cancelled + control.purged
  if accounted ~= control.sequence then
    find(7, control.sequence, accounted)
  end
end
return results
