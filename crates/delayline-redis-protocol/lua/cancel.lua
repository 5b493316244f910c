-- State::cancel. ARGV: now, the ids. Results: CANCEL_DONE, CANCEL_IN_FLIGHT, CANCEL_NOT_FOUND.

--@include prelude.lua
--@include lists.lua
--@include records.lua
--@include details.lua
--@include finished.lua

local results, new_finished, new_details, gone = {ANSWER_RESULTS, now, 0}, {}, {}, {}
-- Where a message stands is not looked up. It is leased only if its details were not readable.
local old_due = {}
local old_leased, old_dead = old_due, old_due

--@include finish.lua
--@include write.lua

-- READ
--@reads records, details
local ids = {}
for i = 2, #ARGV do
  ids[i - 1] = ARGV[i]
end
local records = redis.call('HMGET', key.records, unpack(ids))
local stored = redis.call('HMGET', key.details, unpack(ids))
local past = finished_of(2, #ARGV)

-- DECIDE
for i, id in ipairs(ids) do
  local record, entry = records[i], stored[i]
  local phase = entry and record and readable_details(entry)
    and sub(entry, DETAILS_SEQUENCE) == sub(record, RECORD_SEQUENCE) and byte(entry, DETAILS_PHASE)
    or PHASE_WAITING
  if not record then
    local was_cancelled = past[i] and byte(past[i], FINISHED_STATUS) == CANCELLED
    results[3 + i] = was_cancelled and CANCEL_DONE or CANCEL_NOT_FOUND
  elseif phase == PHASE_LEASED or phase == PHASE_CANCELLING then
    if phase == PHASE_LEASED then
      push(new_details, id, string.char(PHASE_CANCELLING) .. sub(entry, DETAILS_PHASE + 1))
    end
    results[3 + i] = CANCEL_IN_FLIGHT
  else
    finish(id, digest_of(record), CANCELLED, '')
    old_due[#gone] = member_of(record, id)
    results[3 + i] = CANCEL_DONE
  end
end

-- WRITE
if #new_details > 0 or #gone > 0 then
  ask()
  begin_writes()
  write()
  commit()
end
results[3] = control.revision
return results
