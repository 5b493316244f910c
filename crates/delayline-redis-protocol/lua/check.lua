-- State::check. ARGV: now, limit, and the position to go on from, if any: band, instant, sequence
-- in two halves.
-- Results: examined, 1 if there may be more, the band, instant and halves of the sequence of the
-- last entry, then the findings; see audit.lua. Behind the bands the position is AT_DETAILS or
-- AT_UPDATES and a cursor, or AT_SLOTS and a rank, in the halves of the sequence: see orphans.lua.

--@include prelude.lua
--@include lists.lua
--@include records.lua
--@include details.lua
--@include take_over.lua
--@include turns.lua
--@include slots.lua
--@include walk.lua
--@include audit.lua
--@include orphans.lua

local limit, position = tonumber(ARGV[2]), position_from(3)
local examined = examine_entries(position, limit)
results[4] = examined
local goes_on = examined == limit
if not goes_on then
  local number, cursor = AT_DETAILS, 0
  if position and position.index >= AT_DETAILS then
    number, cursor = position.index, position.high * HALF + position.low
  end
  number, cursor = look_for_orphans(number, cursor, find_orphan)
  if number then
    goes_on = true
    results[6], results[7] = number, 0
    results[8], results[9] = math.floor(cursor / HALF), cursor % HALF
  end
end
results[5] = goes_on and 1 or 0

if not goes_on then
  each_gap(function(band, from, to)
    if count(from, to) > 0 then
      find(FOUND_MALFORMED_ENTRY, band, '')
    end
  end)
  local indexed = redis.call('ZCARD', key.index)
  local records = redis.call('HLEN', key.records)
  if records ~= indexed then
    find(FOUND_RECORD_COUNT, records, indexed)
  end
  local accounted = indexed + control.acked + control.cancelled + control.purged + control.relayed
    + control.replaced
  if accounted ~= control.sequence then
    find(FOUND_CONSERVATION, control.sequence, accounted)
  end
end
return results
