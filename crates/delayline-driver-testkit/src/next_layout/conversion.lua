-- Converts queues to the layout of shim.lua: what stands in two hashes, and the control record.

local total = redis.call('HLEN', key.records) + redis.call('HLEN', key.details)
local control_bytes = CONTROL_BYTES

--@include converting.lua

local function moved(value, by)
  return '\3' .. sub(value, by + 1) .. sub(value, 1, by)
end

local function convert_control(control)
  return moved(sub(control, 2), 8)
end

-- The values that have the old form, in the new one.
local function converted(page, by)
  local changed = {}
  for i = 1, #page[2], 2 do
    local value = page[2][i + 1]
    if byte(value) ~= 3 then
      changed[#changed + 1] = page[2][i]
      changed[#changed + 1] = moved(value, by)
    end
  end
  return changed
end

-- A server may be set to keep long hashes as lists, which HSCAN returns as a whole. `unpack` takes
-- fewer values.
local piece = 1000
local page
if phase == 1 then
  page = redis.call('HSCAN', key.records, cursor, 'COUNT', limit)
  local changed = converted(page, 8)
  for first = 1, #changed, piece do
    redis.call('HSET', key.records, unpack(changed, first, math.min(first + piece - 1, #changed)))
  end
else
  page = redis.call('HSCAN', key.details, cursor, 'COUNT', limit)
  local changed = converted(page, 3)
  for first = 1, #changed, piece do
    redis.call('HSET', key.details, unpack(changed, first, math.min(first + piece - 1, #changed)))
  end
end
local is_last_phase = phase >= 2

--@include converted.lua
