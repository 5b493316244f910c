-- State::extend. ARGV: now, lease in ms, then for each lease the id and an `extension` (layout.rs).
-- Results: EXTEND_DONE, EXTEND_CANCELLING if cancelling is requested too, EXTEND_STALE,
-- EXTEND_MISSING. The deadline is the same for all: now and the lease.

--@include prelude.lua
--@include lists.lua
--@include bell.lua
--@include places.lua
--@include details.lua
--@include saving.lua
--@include write.lua

-- READ
--@reads index, details
local ids, items = {}, {}
for i = 3, #ARGV, 2 do
  ids[#ids + 1], items[#items + 1] = ARGV[i], ARGV[i + 1]
end
local stored = redis.call('HMGET', key.details, unpack(ids))

-- DECIDE
local results, new_places, new_details = {ANSWER_RESULTS, now, 0}, {}, {}
local shortens = false
local ends = after(tonumber(ARGV[2]))
local deadline = format('%d', AT_LEASED * BAND + ends)
for i, id in ipairs(ids) do
  local entry, item = stored[i], items[i]
  local lease = #item > LEASE_BYTES and sub(item, EXTENSION_LEASE) or item
  local state = entry and readable_details(entry) and sub(entry, DETAILS_LEASE) == lease
    and byte(entry, DETAILS_STATE)
  if state == LEASE_OPEN or state == LEASE_CANCELLING then
    local member = member_by(entry, id)
    -- Details may be all that a torn end has left.
    local band, until_now = place_of(member)
    if band == AT_LEASED then
      shortens = shortens or ends < until_now
      push(new_places, deadline, member)
      if #item > LEASE_BYTES then
        local d, save = read_details(entry), sub(item, EXTENSION_SAVE_FROM)
        local before = d.saved
        keep_save()
        if d.saved ~= before then
          push(new_details, id, write_details(d))
        end
      end
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
-- Sleepers know a later end of a lease that is cut short.
local ring = shortens and rings(ends, nil, true)

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
