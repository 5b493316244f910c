-- State::purge. ARGV: now, ids. Results: 1 purged, 2 not dead, 3 not found.

--@include prelude.lua
--@include writing.lua
--@include records.lua
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
redis.call('ZCARD', key.dead)

local results, finished, gone, members = {0, now, 0}, {}, {}, {}
for i, id in ipairs(ids) do
  local record, entry = records[i], stored[i]
  if not record then
    results[3 + i] = past[i] and byte(past[i]) == PURGED and 1 or 3
  elseif not entry or byte(entry) ~= DEAD_PHASE or sub(entry, 27, 34) ~= sub(record, 1, 8) then
    results[3 + i] = 2
  else
    finished[#finished + 1] = id
    finished[#finished + 1] = string.char(PURGED) .. digest_of(record)
    gone[#gone + 1] = id
    members[#members + 1] = member_of(record, id)
    results[3 + i] = 1
  end
end

if #gone > 0 then
  --@ask ZREM dead, SET control
  begin_writes()
  remember_finished(finished, finished_count)
  redis.call('ZREM', key.dead, unpack(members))
  delete_messages(gone)
  control.purged = control.purged + #gone
  commit(true)
end
results[3] = control.revision
return results
