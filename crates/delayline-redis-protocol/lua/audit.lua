-- For the scripts that audit: what is wrong with an index entry, noted in `results` as a kind and two
-- values:
--   1 malformed entry: index, ''         5 missing details: id, ''
--   2 missing record: id, ''             6 record count: records, indexed
--   3 wrong record: id, ''               7 conservation: enqueued, accounted
--   4 in two states: id, ''              8 orphan: id, ''

local results = {ANSWER_RESULTS, now, control.revision, 0, 0, 0, 0, 0, 0}

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
  local id = sub(member, MEMBER_ID_FROM)
  if #member < MEMBER_ID_FROM or #id > MAX_ID_BYTES then
    return find(FOUND_MALFORMED_ENTRY, number, '')
  end
  local record, details =
    redis.call('HGET', key.records, id), redis.call('HGET', key.details, id)
  local _, limits = read_record(record)
  if not has_content(id, record) then
    return find(FOUND_MISSING_RECORD, id, '')
  elseif member_of(record, id) ~= member or index == due and level_of(record) ~= number then
    return find(FOUND_WRONG_RECORD, id, '')
  elseif in_another(index, member) then
    return find(FOUND_IN_TWO_STATES, id, '')
  end
  local phase = PHASE_WAITING
  if details then
    phase = readable_details(details) and sub(details, DETAILS_SEQUENCE) == sub(record, RECORD_SEQUENCE)
      and sub(details, DETAILS_FIXED) == fixed_of(record, limits) and byte(details, DETAILS_PHASE) or -1
  end
  local fits = index == due and phase == PHASE_WAITING
    or index == leased and (phase == PHASE_LEASED or phase == PHASE_CANCELLING)
    or index == dead and phase == PHASE_DEAD
  if not fits then
    find(FOUND_MISSING_DETAILS, id, '')
  end
end
