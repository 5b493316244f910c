-- State::check. ARGV: now, limit, and the position to go on from, if any: index, instant, sequence
-- in two halves.
-- Results: examined, 1 if there may be more, the index, instant and halves of the sequence of the
-- last entry, then the findings; see audit.lua. Behind the indexes the position is 7 and a cursor, in
-- the halves of the sequence: details without a record.

--@include prelude.lua
--@include records.lua
--@include details.lua
--@include walk.lua
--@include audit.lua
--@include orphans.lua

local limit, position = tonumber(ARGV[2]), position_from(3)
local examined = 0

-- How many entries have an instant that can be.
local possible = {}

local function check(index, number, base)
  possible[index] = (possible[index] or 0) + index.count(base, base + MAX_TIMESTAMP)
  if position and position.index > number or examined >= limit then
    return
  end
  local after_position = position and position.index == number and position or nil
  local found = walk(index, base, 0, MAX_TIMESTAMP, after_position, limit - examined)
  for i = 1, #found, 2 do
    local member = found[i]
    examine(index, number, member)
    examined = examined + 1
    results[6], results[7] = number, tonumber(found[i + 1]) - base
    results[8], results[9] = sequence_of(member)
  end
end

for level = 0, LAST_LEVEL do
  check(due, level, level * LEVEL)
end
check(leased, AT_LEASED, 0)
check(dead, AT_DEAD, 0)
results[4] = examined
local goes_on = examined == limit
if not goes_on then
  local number, cursor = AT_DETAILS, 0
  if position and position.index == AT_DETAILS then
    cursor = position.high * HALF + position.low
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
  local indexed = 0
  for number, index in pairs{[0] = due, [AT_LEASED] = leased, [AT_DEAD] = dead} do
    local entries = index.count('-inf', '+inf')
    if entries ~= possible[index] then
      find(FOUND_MALFORMED_ENTRY, number, '')
    end
    indexed = indexed + entries
  end
  local records = redis.call('HLEN', key.records)
  if records ~= indexed then
    find(FOUND_RECORD_COUNT, records, indexed)
  end
  local accounted = indexed + control.acked + control.cancelled + control.purged
  if accounted ~= control.sequence then
    find(FOUND_CONSERVATION, control.sequence, accounted)
  end
end
return results
