-- State::list. ARGV: now, status, limit, and the position to go on from, if any: index, instant,
-- sequence in two halves.
-- Results: 1 if there may be more, then for each message its band, member, the first bytes of
-- its record, the length of its payload, details ('' if there are none) and the instant of its place.

--@include prelude.lua
--@include records.lua
--@include walk.lua

local status, limit, position = tonumber(ARGV[2]), tonumber(ARGV[3]), position_from(4)
local results, listed = {ANSWER_RESULTS, now, control.revision, 0}, 0

local function list(band, from, to)
  local found = walk(band, from, to, position, limit - listed)
  for i = 1, #found, 2 do
    local member, score = found[i], tonumber(found[i + 1])
    local id = sub(member, MEMBER_ID_FROM)
    local record, payload, n = redis.call('HGET', key.records, id), 0, #results
    local content = read_record(record)
    if content and sub(record, RECORD_SEQUENCE) == sub(member, MEMBER_SEQUENCE) then
      local _
      _, payload = content_lengths(record, content)
    end
    results[n + 1], results[n + 2] = band, member
    results[n + 3], results[n + 4] = sub(record or '', 1, RECORD_HEAD_BYTES), payload
    results[n + 5] = redis.call('HGET', key.details, id) or ''
    results[n + 6] = score - band * BAND
    listed = listed + 1
  end
end

if status == LEASED then
  list(AT_LEASED, 0, MAX_TIMESTAMP)
elseif status == DEAD then
  list(AT_DEAD, 0, MAX_TIMESTAMP)
else
  for level = 0, LAST_LEVEL do
    if status == READY then
      list(level, 0, now)
    else
      list(level, now + 1, MAX_TIMESTAMP)
    end
  end
end
results[4] = listed == limit and 1 or 0
return results
