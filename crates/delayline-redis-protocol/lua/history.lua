-- State::history. ARGV: now, RESOLUTION_MINUTES or RESOLUTION_HOURS.
-- Results: the points that are not too old, in the order of their times, each a `point`
-- (layout.rs); the last one is of now.

--@include prelude.lua
--@include point.lua

-- READ
local letter, slots, unit = 'm', HISTORY_MINUTES, MINUTE
if tonumber(ARGV[2]) == RESOLUTION_HOURS then
  letter, slots, unit = 'h', HISTORY_HOURS, HOUR
end
local last = math.floor(now / unit)
local first, fields = math.max(last + 1 - slots, 0), {}
for number = first, last do
  fields[#fields + 1] = letter .. format('%d', number % slots)
end
local stored = redis.call('HMGET', key.history, unpack(fields))

-- DECIDE
local results = {ANSWER_RESULTS, now, control.revision}
for i, value in ipairs(stored) do
  -- A slot may still hold an earlier point, or bytes that no library of this kind has written.
  local at = value and #value >= POINT_BYTES and struct.unpack(INSTANT, value, POINT_AT_FROM)
  if at and math.floor(at / unit) == first + i - 1 then
    results[#results + 1] = value
  end
end
results[#results + 1] = point(now)
return results
