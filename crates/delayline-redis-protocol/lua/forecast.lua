-- State::forecast. ARGV: now, then delays in ms, in ascending order.
-- Results: how many messages are ready, due within each delay but not the one before, and due
-- later.

--@include prelude.lua

-- READ
local has_groups = control.uses >= USES_GROUPS
local function count_until(instant)
  local count = 0
  for level = 0, LAST_LEVEL do
    count = count + redis.call('ZCOUNT', key.index, level * BAND, level * BAND + instant)
  end
  if has_groups then
    count = count + redis.call('ZCOUNT', key.index, FIRST_IN_LANES, AT_GROUPED * BAND + instant)
  end
  return count
end

-- DECIDE
local counted = count_until(now)
local results = {ANSWER_RESULTS, now, control.revision, counted}
for i = 2, #ARGV + 1 do
  local before = counted
  counted = count_until(ARGV[i] and after(tonumber(ARGV[i])) or MAX_TIMESTAMP)
  results[3 + i] = counted - before
end
return results
