-- State::extend. ARGV: now, lease in ms, then for each lease the id and a `lease` (layout.rs).
-- Results: EXTEND_DONE, EXTEND_CANCELLING if cancelling is requested too, EXTEND_STALE,
-- EXTEND_MISSING. The deadline is the same for all: now and the lease.

--@include prelude.lua
--@include lists.lua
--@include places.lua
--@include details.lua
--@include write.lua

-- READ
--@reads index
local ids, leases = {}, {}
for i = 3, #ARGV, 2 do
  ids[#ids + 1], leases[#leases + 1] = ARGV[i], ARGV[i + 1]
end
local stored = redis.call('HMGET', key.details, unpack(ids))

-- DECIDE
local results, new_places = {ANSWER_RESULTS, now, 0}, {}
local deadline = format('%d', AT_LEASED * BAND + after(tonumber(ARGV[2])))
for i, id in ipairs(ids) do
  local entry = stored[i]
  local state = entry and readable_details(entry) and sub(entry, DETAILS_LEASE) == leases[i]
    and byte(entry, DETAILS_STATE)
  if state == LEASE_OPEN or state == LEASE_CANCELLING then
    local member = member_by(entry, id)
    -- Details may be all that a torn end has left.
    if place_of(member) == AT_LEASED then
      push(new_places, deadline, member)
      results[3 + i] = state == LEASE_OPEN and EXTEND_DONE or EXTEND_CANCELLING
    else
      results[3 + i] = EXTEND_STALE
    end
  elseif entry or redis.call('HEXISTS', key.records, id) == 1 then
    results[3 + i] = EXTEND_STALE
  else
    results[3 + i] = EXTEND_MISSING
  end
end

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
