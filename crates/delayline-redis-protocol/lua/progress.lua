-- State::progress. ARGV: now, ids.
-- Results, for each id, until results would exceed MAX_BATCH_BYTES: PROGRESS_PENDING, minus the
-- reason of a dead message, the status of a finished one, or PROGRESS_UNKNOWN; behind ACKED its
-- result, or 0.

--@include prelude.lua
--@include places.lua
--@include records.lua
--@include details.lua
--@include finished.lua
--@include over.lua
--@include results.lua

-- What the details of a live message tell; nil if they belong to none.
local function live_by_details(id, entry)
  local band = readable_details(entry) and place_of(member_by(entry, id))
  if band then
    return band == AT_DEAD and -byte(entry, DETAILS_REASON) or PROGRESS_PENDING
  end
end

-- The same of a message by its record. A torn file may keep the record of one that has ended.
local function live_by_record(id, entry, past)
  if redis.call('HEXISTS', key.records, id) == 1 then
    local record = past and redis.call('HGET', key.records, id)
    if not record or place_of(member_of(record, id)) or not is_over(record, past, entry) then
      return PROGRESS_PENDING
    end
  end
end

-- State::progress_of. `entry` are the details of the id, and `past` is what is remembered of it, if
-- there is any.
-- Answers the result besides.
local function progress_of(id, entry, past)
  local live = entry and live_by_details(id, entry) or live_by_record(id, entry, past)
  if live then
    return live
  elseif past and byte(past, FINISHED_STATUS) ~= ACKED then
    return byte(past, FINISHED_STATUS)
  end
  local result = result_of(id)
  if past and result and sub(past, FINISHED_LEASE) ~= sub(result, RESULT_LEASE) then
    result = nil -- of an earlier message
  end
  return (past or result) and ACKED or PROGRESS_UNKNOWN, result and sub(result, RESULT_CONTENT_FROM)
end

-- READ
local ids = {}
for i = 2, #ARGV do
  ids[i - 1] = ARGV[i]
end
local stored, past = redis.call('HMGET', key.details, unpack(ids)), finished_of(2, #ARGV)

-- DECIDE
local results, bytes = {ANSWER_RESULTS, now, control.revision}, 0
for i, id in ipairs(ids) do
  local progress, result = progress_of(id, stored[i], past[i])
  bytes = bytes + (result and #result or 0)
  if bytes > MAX_BATCH_BYTES then
    break
  end
  results[#results + 1] = progress
  if progress == ACKED then
    results[#results + 1] = result or 0
  end
end
return results
