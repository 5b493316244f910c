-- For the scripts that audit: what is wrong with an index entry, noted in `results` as a kind and two
-- values:
--   1 malformed entry: index, ''         5 missing details: id, ''
--   2 missing record: id, ''             6 record count: records, indexed
--   3 wrong record: id, ''               7 conservation: enqueued, accounted
--   4 in two states: id, ''              8 orphan: id, ''

local results = {0, now, control.revision, 0, 0, 0, 0, 0, 0}

local function find(kind, first, second)
  local n = #results
  results[n + 1], results[n + 2], results[n + 3] = kind, first, second
end

local function in_another(index, member)
  return index ~= due and redis.call('ZSCORE', key.due, member)
    or index ~= leased and redis.call('ZSCORE', key.leased, member)
    or index ~= dead and redis.call('ZSCORE', key.dead, member)
end

local function examine(index, number, member)
  local id = sub(member, 9)
  if #member < 9 or #id > 128 then
    return find(1, number, '')
  end
  local record, details =
    redis.call('HGET', key.records, id), redis.call('HGET', key.details, id)
  local _, limits = read_record(record)
  if not has_content(id, record) then
    return find(2, id, '')
  elseif member_of(record, id) ~= member or index == due and level_of(record) ~= number then
    return find(3, id, '')
  elseif in_another(index, member) then
    return find(4, id, '')
  end
  local phase = WAITING_PHASE
  if details then
    phase = readable_details(details) and sub(details, 27, 34) == sub(record, 1, 8)
      and sub(details, 35, 47) == fixed_of(record, limits) and byte(details) or -1
  end
  local fits = index == due and phase == WAITING_PHASE
    or index == leased and (phase == LEASED_PHASE or phase == CANCELLING_PHASE)
    or index == dead and phase == DEAD_PHASE
  if not fits then
    find(5, id, '')
  end
end
