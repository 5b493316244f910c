-- State::reschedule. ARGV: now, then for each message its id and a `schedule` (layout.rs).
-- Results: the new due instant, or RESCHEDULE_IN_FLIGHT, RESCHEDULE_DEAD, RESCHEDULE_NOT_FOUND.

--@include prelude.lua
--@include lists.lua
--@include bell.lua
--@include scheduling.lua
--@include records.lua
--@include write.lua

-- READ
--@reads records
local ids = {}
for i = 2, #ARGV, 2 do
  ids[#ids + 1] = ARGV[i]
end
local records = redis.call('HMGET', key.records, unpack(ids))
local stored = redis.call('HMGET', key.details, unpack(ids))

-- DECIDE
local results, new_due, first_due = {ANSWER_RESULTS, now, 0}, {}, NEVER
for i, id in ipairs(ids) do
  local record, entry = records[i], stored[i]
  local phase = entry and record and sub(entry, DETAILS_SEQUENCE) == sub(record, RECORD_SEQUENCE)
    and byte(entry, DETAILS_PHASE) or PHASE_WAITING
  if not read_record(record) then
    results[3 + i] = RESCHEDULE_NOT_FOUND
  elseif phase == PHASE_DEAD then
    results[3 + i] = RESCHEDULE_DEAD
  elseif phase ~= PHASE_WAITING then
    results[3 + i] = RESCHEDULE_IN_FLIGHT
  else
    local due = instant(ARGV[2 * i + 1], 1)
    push(new_due, due_score(level_of(record), due), member_of(record, id))
    first_due = math.min(first_due, due)
    results[3 + i] = due
  end
end
local ring = #new_due > 0 and rings(first_due)

-- WRITE
if #new_due > 0 then
  ask()
  begin_writes()
  write()
  commit()
end
results[3] = control.revision
return results
