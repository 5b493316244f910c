-- State::get. ARGV: now, ids.
-- Results, five for each id: record, details ('' if there are none) and the score in `index` of a
-- live message; the status of a finished one, '' and 0; GET_UNKNOWN, '' and 0; GET_UNREADABLE, ''
-- and 0 for one that cannot be read; then of its follower the due instant with the first bytes of
-- its record, and the length of its payload; '' and 0 if there is none. In a queue in order,
-- a ready message has the id of the message that it waits for instead. If the group of a ready
-- message is held, it has the end of the hold instead of the length.

--@include prelude.lua
--@include places.lua
--@include records.lua
--@include details.lua
--@include finished.lua
--@include over.lua
--@include take_over.lua

-- State::in_front. Reads record, id, n and results.
--@inline
local function in_front()
  local member = member_of(record, id)
  local number = struct.unpack(INSTANT, member, MEMBER_LANE_FROM)
  local score, lane = format('%d', number), format('%d', AT_LANES * BAND + number)
  local holders = redis.call('ZRANGEBYSCORE', key.slots, score, score)
  if #holders == 0 then
    local head = redis.call('ZRANGEBYSCORE', key.index, lane, lane, 'LIMIT', '0', '1')[1]
    if head and #head >= GROUPED_ID_FROM and struct.unpack(NUMBER, head, 2) < struct.unpack(NUMBER, member, 2) then
      results[n + 4] = id_of(head)
    end
  elseif holders[1] ~= member then
    results[n + 4] = id_of(holders[1])
  else
    for i = 2, #holders do
      if place_of(holders[i]) == AT_LEASED then
        results[n + 4] = id_of(holders[i])
        break
      end
    end
  end
end

-- Turns::held_until. Reads record, id, n and results.
--@inline
local function look_at_hold()
  local turn = redis.call('ZSCORE', key.turns, sub(member_of(record, id), MEMBER_LANE))
  local held_until = NO_TURN - tonumber(turn or NO_TURN)
  if held_until > now then
    results[n + 5] = held_until
  end
end

local in_order = control.limits ~= '' and byte(control.limits, QUEUE_LIMITS_IN_ORDER) == 1
local ids = {}
for i = 2, #ARGV do
  ids[i - 1] = ARGV[i]
end
local records = redis.call('HMGET', key.records, unpack(ids))
local stored = redis.call('HMGET', key.details, unpack(ids))
local past = finished_of(2, #ARGV)
local known = bit.band(control.uses, USES_UPDATES) ~= 0
  and redis.call('HMGET', key.updates, unpack(ids)) or {}

local results = {ANSWER_RESULTS, now, control.revision}
for i, id in ipairs(ids) do
  local record, details = records[i], stored[i] or ''
  local n = #results
  results[n + 4], results[n + 5] = '', 0
  if record and #details >= DETAILS_BYTES
    and sub(details, DETAILS_SEQUENCE) ~= sub(record, RECORD_SEQUENCE) then
    details = '' -- left by an earlier message of that id
  end
  local content = read_record(record)
  local whole = content and (details == '' or readable_details(details))
    and whole_record(id, record, content)
  local band, instant
  if whole then
    band, instant = place_of(member_of(record, id))
  end
  if band then
    results[n + 1], results[n + 2], results[n + 3] = whole, details, band * BAND + instant
    if band == AT_LEASED and has_follower(known[i], sub(record, RECORD_SEQUENCE)) then
      local of_group = byte(known[i], UPDATES_LEVEL) == AT_GROUPED and OF_GROUP_BYTE or '\0'
      local follower = of_group .. sub(NO_SEQUENCE, 2) .. sub(known[i], UPDATES_ENQUEUED_AT_FROM)
      local position = read_record(follower)
      if position then
        local _
        _, results[n + 5] = content_lengths(follower, position)
        results[n + 4] = sub(known[i], UPDATES_DUE) .. head_of(follower)
      end
    elseif band == AT_LANES or band == AT_GROUPED and instant <= now then
      if in_order then
        in_front()
      end
      if control.uses >= USES_HOLDS then
        look_at_hold()
      end
    end
  elseif record and (place_of(member_of(record, id)) or not is_over(record, past[i], details)) then
    results[n + 1], results[n + 2], results[n + 3] = GET_UNREADABLE, '', 0
  else
    local status = past[i] and byte(past[i], FINISHED_STATUS) or GET_UNKNOWN
    results[n + 1], results[n + 2], results[n + 3] = status, '', 0
  end
end
return results
