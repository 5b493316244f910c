-- State::get. ARGV: now, ids.
-- Results, three for each id: record, details ('' if there are none) and the instant of its index
-- (due, deadline or death) of a live message; the status of a finished one, '' and 0; 0, '' and 0
-- for an unknown one.

local ids = {}
for i = 2, #ARGV do
  ids[i - 1] = ARGV[i]
end
local records = redis.call('HMGET', key.records, unpack(ids))
local stored = redis.call('HMGET', key.details, unpack(ids))
local past = finished_of(ids)

local results = {0, now, control.revision}
for i, id in ipairs(ids) do
  local record, details = records[i], stored[i] or ''
  local n, score = #results, 0
  if record then
    local phase, member = byte(details) or WAITING_PHASE, member_of(record, id)
    if phase == WAITING_PHASE then
      score = (tonumber(redis.call('ZSCORE', key.due, member) or 0)) % LEVEL
    elseif phase == DEAD_PHASE then
      score = tonumber(redis.call('ZSCORE', key.dead, member) or 0)
    else
      score = tonumber(redis.call('ZSCORE', key.leased, member) or 0)
    end
    results[n + 1], results[n + 2], results[n + 3] = record, details, score
  else
    results[n + 1], results[n + 2], results[n + 3] = past[i] and byte(past[i]) or 0, '', 0
  end
end
return results
