-- State::cancel. ARGV: now, the ids. Results: CANCEL_DONE, CANCEL_IN_FLIGHT, CANCEL_NOT_FOUND.

--@include prelude.lua
--@include lists.lua
--@include places.lua
--@include records.lua
--@include details.lua
--@include finished.lua
--@include bell.lua
--@include turns.lua
--@include freeing.lua

local results, new_finished, new_details = {ANSWER_RESULTS, now, 0}, {}, {}
local removed, gone, new_updates = {}, {}, {}

--@include finish.lua
--@include write.lua

-- READ
--@reads details
local ids = {}
for i = 2, #ARGV do
  ids[i - 1] = ARGV[i]
end
local records = redis.call('HMGET', key.records, unpack(ids))
local stored = redis.call('HMGET', key.details, unpack(ids))
local past = finished_of(2, #ARGV)
local known = bit.band(control.uses, USES_UPDATES) ~= 0
  and redis.call('HMGET', key.updates, unpack(ids)) or {}

-- DECIDE
for i, id in ipairs(ids) do
  local record, entry = records[i], stored[i]
  local state = entry and record and readable_details(entry)
    and sub(entry, DETAILS_SEQUENCE) == sub(record, RECORD_SEQUENCE) and byte(entry, DETAILS_STATE)
    or LEASE_CLOSED
  if not record then
    local was_cancelled = past[i] and byte(past[i], FINISHED_STATUS) == CANCELLED
    results[3 + i] = was_cancelled and CANCEL_DONE or CANCEL_NOT_FOUND
  elseif state ~= LEASE_CLOSED and place_of(member_of(record, id)) == AT_LEASED then
    if state == LEASE_OPEN then
      push(new_details, id, string.char(LEASE_CANCELLING) .. sub(entry, DETAILS_STATE + 1))
    end
    if known[i] and #known[i] > UPDATES_BYTES then
      push(new_updates, id, sub(known[i], UPDATES_TOKENS)) -- without the follower
    end
    results[3 + i] = CANCEL_IN_FLIGHT
  else
    finish(id, digest_of(record), CANCELLED, '', known[i])
    removed[#gone] = member_of(record, id)
    results[3 + i] = CANCEL_DONE
    if most_of_group then -- also where not in order: the end of a lease may have been torn
      free_slot(removed[#gone])
    end
  end
end
local ring = unblocked > 0 and redis.call('ZCOUNT', key.index, FIRST_IN_LANES, LAST_IN_LANES) > 0 and rings(0)

-- WRITE
if #new_details > 0 or #new_updates > 0 or #gone > 0 then
  look_at_minute()
  ask()
  begin_writes()
  write()
  commit()
end
results[3] = control.revision
return results
