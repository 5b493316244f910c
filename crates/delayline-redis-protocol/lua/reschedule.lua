-- State::reschedule. ARGV: now, then for each message its id and an instant (7 bytes).
-- Results: the new due instant; -1 in flight, -2 dead, -3 not found.

--@include prelude.lua
--@include writing.lua
--@include bell.lua
--@include scheduling.lua
--@include records.lua
--@include record_reading.lua

local ids = {}
for i = 2, #ARGV, 2 do
  ids[#ids + 1] = ARGV[i]
end
local records = redis.call('HMGET', key.records, unpack(ids))
local stored = redis.call('HMGET', key.details, unpack(ids))

local results, due_pairs, first_due = {0, now, 0}, {}, NEVER
for i, id in ipairs(ids) do
  local record, entry = records[i], stored[i]
  local phase = entry and record and sub(entry, 27, 34) == sub(record, 1, 8) and byte(entry)
    or WAITING_PHASE
  if not read_record(record) then
    results[3 + i] = -3
  elseif phase == DEAD_PHASE then
    results[3 + i] = -2
  elseif phase ~= WAITING_PHASE then
    results[3 + i] = -1
  else
    local due = instant(ARGV[2 * i + 1], 1)
    due_pairs[#due_pairs + 1] = due_score(level_of(record), due)
    due_pairs[#due_pairs + 1] = member_of(record, id)
    first_due = math.min(first_due, due)
    results[3 + i] = due
  end
end

if #due_pairs > 0 then
  local ring = rings(first_due)
  --@ask ZADD due, SET control
  begin_writes()
  redis.call('ZADD', key.due, unpack(due_pairs))
  if ring then
    redis.call('LPUSH', key.bell, '1')
  end
  commit(true)
end
results[3] = control.revision
return results
