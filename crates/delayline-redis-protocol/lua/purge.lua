-- State::purge. ARGV: now, the ids. Results: PURGE_DONE, PURGE_NOT_DEAD, PURGE_NOT_FOUND.

--@include prelude.lua
--@include places.lua
--@include records.lua
--@include finished.lua
--@include over.lua

local results, new_finished, removed, gone = {ANSWER_RESULTS, now, 0}, {}, {}, {}

--@include finish.lua
--@include write.lua

-- READ
--@reads index
local ids = {}
for i = 2, #ARGV do
  ids[i - 1] = ARGV[i]
end
local records = redis.call('HMGET', key.records, unpack(ids))
local past = finished_of(2, #ARGV)
local known = bit.band(control.uses, USES_UPDATES) ~= 0
  and redis.call('HMGET', key.updates, unpack(ids)) or {}

-- DECIDE
for i, id in ipairs(ids) do
  local record = records[i]
  if not record then
    local was_purged = past[i] and byte(past[i], FINISHED_STATUS) == PURGED
    results[3 + i] = was_purged and PURGE_DONE or PURGE_NOT_FOUND
  else
    local band = place_of(member_of(record, id))
    -- A purge that was torn is finished by its repetition.
    local is_torn = not band and is_over(record, past[i]) and byte(past[i], FINISHED_STATUS) == PURGED
    if band ~= AT_DEAD and not is_torn then
      results[3 + i] = PURGE_NOT_DEAD
    else
      finish(id, digest_of(record), PURGED, '', known[i])
      removed[#gone] = member_of(record, id)
      results[3 + i] = PURGE_DONE
    end
  end
end

-- WRITE
if #gone > 0 then
  look_at_minute()
  ask()
  begin_writes()
  write()
  commit()
end
results[3] = control.revision
return results
