-- State::list. ARGV: now, status, limit, and the position to go on from, if any: index, instant,
-- sequence in two halves.
-- Results: 1 if there may be more, then for each message its band, member, the first bytes of
-- its record, the length of its payload, details without the attempts and the checkpoint ('' if
-- there are none) and the instant of its place.

--@include prelude.lua
--@include records.lua
--@include details.lua
--@include walk.lua

local status, limit, position = tonumber(ARGV[2]), tonumber(ARGV[3]), position_from(4)
local results, listed = {ANSWER_RESULTS, now, control.revision, 0}, 0

local function list(band, from, to)
  local found = walk(band, from, to, position, limit - listed)
  for i = 1, #found, 2 do
    local member, score = found[i], tonumber(found[i + 1])
    local id = id_of(member)
    local sequence, payload, n = sub(member, MEMBER_SEQUENCE), 0, #results
    local record = redis.call('HGET', key.records, id) or ''
    local details = redis.call('HGET', key.details, id) or ''
    -- Another message of that id may have taken the place of this one.
    record = member_of(record, id) == member and record or ''
    details = sub(details, DETAILS_SEQUENCE) == sequence and details or ''
    if #details > DETAILS_BYTES then
      local first, last = struct.unpack(ERROR_LENGTHS, details, DETAILS_FIRST_ERROR_LENGTH_FROM)
      local shown = head_of_details(details) + first + last
      local least = SAVED_BYTES + SAVE_BYTES
      if struct.unpack(U16, details, DETAILS_SAVED_LENGTH_FROM) >= least and #details >= shown + least then
        shown = shown + least + struct.unpack(U16, details, shown + SAVED_BYTES + SAVE_TEXT_LENGTH_FROM)
      end
      details = sub(details, 1, shown)
    end
    local content = read_record(record)
    if content then
      local _
      _, payload = content_lengths(record, content)
    end
    results[n + 1], results[n + 2] = band, member
    results[n + 3], results[n + 4], results[n + 5] = head_of(record), payload, details
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
  if status == READY then
    list(AT_LANES, 0, MAX_TIMESTAMP)
    list(AT_GROUPED, 0, now)
  else
    list(AT_GROUPED, now + 1, MAX_TIMESTAMP)
  end
end
results[4] = listed == limit and 1 or 0
return results
