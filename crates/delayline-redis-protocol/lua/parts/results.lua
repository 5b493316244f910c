-- Results of acks. The field of `results` with the empty name is the number of bytes of all of
-- them, which no message can be called.

-- How many bytes the result of an id has, whether or not it is over.
local function result_bytes(id)
  return math.max(0, redis.call('HSTRLEN', key.results, id) - RESULT_BYTES)
end

-- The result of an id, unless it is over.
local function result_of(id)
  local value = redis.call('HGET', key.results, id)
  return value and #value >= RESULT_BYTES and struct.unpack(INSTANT, value, RESULT_UNTIL_FROM) > now and value
end

-- Results::make_room: chooses expired results, the oldest first. Sets going, and returns the number
-- of their bytes, and how many they are.
local function trim_results(going, most)
  local bytes = 0
  local over = redis.call('ZRANGEBYSCORE', key.results_until, '0', format('%d', now), 'LIMIT', '0', most)
  for _, id in ipairs(over) do
    going[id], bytes = true, bytes + result_bytes(id)
  end
  return bytes, #over
end
