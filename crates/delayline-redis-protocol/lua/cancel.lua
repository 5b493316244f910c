-- State::cancel. ARGV: now, ids. Results: 1 cancelled, 2 in flight, 3 not found.

--@include prelude.lua
--@include writing.lua
--@include records.lua
--@include details.lua
--@include finished.lua
--@include finishing.lua

local ids = {}
for i = 2, #ARGV do
  ids[i - 1] = ARGV[i]
end
local records = redis.call('HMGET', key.records, unpack(ids))
local stored = redis.call('HMGET', key.details, unpack(ids))
local past = finished_of(2, #ARGV)
local finished_count = look_at_finished()
redis.call('ZCARD', key.due)
redis.call('ZCARD', key.leased)
redis.call('ZCARD', key.dead)

local results, flagged, finished, gone, members = {0, now, 0}, {}, {}, {}, {}
for i, id in ipairs(ids) do
  local record, entry = records[i], stored[i]
  local phase = entry and record and readable_details(entry)
    and sub(entry, 27, 34) == sub(record, 1, 8) and byte(entry) or WAITING_PHASE
  if not record then
    results[3 + i] = past[i] and byte(past[i]) == CANCELLED and 1 or 3
  elseif phase == LEASED_PHASE or phase == CANCELLING_PHASE then
    if phase == LEASED_PHASE then
      flagged[#flagged + 1] = id
      flagged[#flagged + 1] = string.char(CANCELLING_PHASE) .. sub(entry, 2)
    end
    results[3 + i] = 2
  else
    finished[#finished + 1] = id
    finished[#finished + 1] = string.char(CANCELLED) .. digest_of(record)
    gone[#gone + 1] = id
    members[#members + 1] = member_of(record, id)
    results[3 + i] = 1
  end
end

if #flagged > 0 or #gone > 0 then
  --@ask HSET details, ZREM due, ZREM dead, ZREM leased, SET control
  begin_writes()
  if #flagged > 0 then
    redis.call('HSET', key.details, unpack(flagged))
  end
  if #gone > 0 then
    remember_finished(finished, finished_count)
    redis.call('ZREM', key.due, unpack(members))
    redis.call('ZREM', key.dead, unpack(members))
    redis.call('ZREM', key.leased, unpack(members)) -- only if its details were not readable
    delete_messages(gone)
    control.cancelled = control.cancelled + #gone
  end
  commit(true)
end
results[3] = control.revision
return results
