-- State::reschedule. ARGV: now, then for each message its id and a `schedule` (layout.rs).
-- Results: the new due instant, or RESCHEDULE_IN_FLIGHT, RESCHEDULE_DEAD, RESCHEDULE_NOT_FOUND.

--@include prelude.lua
--@include lists.lua
--@include bell.lua
--@include scheduling.lua
--@include places.lua
--@include records.lua
--@include details.lua

local new_details, revived = {}, {}

--@include lanes.lua
--@include write.lua

-- READ
--@reads index
local ids = {}
for i = 2, #ARGV, 2 do
  ids[#ids + 1] = ARGV[i]
end
local records = redis.call('HMGET', key.records, unpack(ids))

-- DECIDE
local results, new_places, first_due = {ANSWER_RESULTS, now, 0}, {}, NEVER
for i, id in ipairs(ids) do
  local record = records[i]
  local band = read_record(record) and place_of(member_of(record, id))
  if not band then
    results[3 + i] = RESCHEDULE_NOT_FOUND
  elseif band == AT_LEASED then
    results[3 + i] = RESCHEDULE_IN_FLIGHT
  elseif band == AT_DEAD then
    results[3 + i] = RESCHEDULE_DEAD
  else
    local due = instant(ARGV[2 * i + 1], 1)
    push(new_places, due_score(level_of(record), due), member_of(record, id))
    if level_of(record) == AT_GROUPED then
      keep_due(id, record, due)
    end
    first_due = math.min(first_due, due)
    results[3 + i] = due
  end
end
local ring = #new_places > 0 and rings(first_due)

-- WRITE
if #new_places > 0 then
  look_at_minute()
  ask()
  begin_writes()
  write()
  commit()
end
results[3] = control.revision
return results
