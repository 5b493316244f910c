-- Throttled ids. A window begins when a message with `throttle` is created, and nothing but time
-- ends it.

-- State::throttle. The result of a message that is refused for it.
local function throttle(id)
  local ends = tonumber(redis.call('ZSCORE', key.windows, id) or 0)
  if ends > now and ends <= MAX_TIMESTAMP then
    return ENQUEUE_THROTTLED + math.floor(ends)
  end
end

-- What is to be written: score, member; and ids.
local new_windows, old_windows = {}, {}
local begun, gone_windows, ended_windows, next_ended, window_count = {}, {}, nil, 1, 0

-- Windows::begin. Returns whether there was room.
local function begin_window(id, length)
  if not ended_windows then
    -- Two for each message; and as many may begin anew before their turn comes.
    ended_windows = redis.call('ZRANGEBYSCORE', key.windows, '-inf', format('%d', now), 'LIMIT', '0', 3 * MAX_BATCH)
    window_count = redis.call('ZCARD', key.windows)
  end
  for _ = 1, 2 do
    while begun[ended_windows[next_ended]] do
      next_ended = next_ended + 1
    end
    local oldest = ended_windows[next_ended]
    if oldest then
      next_ended, window_count, gone_windows[oldest] = next_ended + 1, window_count - 1, true
      push(old_windows, oldest)
    end
  end
  if not gone_windows[id] and redis.call('ZSCORE', key.windows, id) then
    window_count = window_count - 1
  end
  if window_count >= MAX_THROTTLED_IDS then
    return false
  end
  window_count, begun[id] = window_count + 1, true
  push(new_windows, format('%d', after(length)), id)
  return true
end

--@inline
local function write_windows()
  if #old_windows > 0 then
    redis.call('ZREM', key.windows, unpack(old_windows))
  end
  redis.call('ZADD', key.windows, unpack(new_windows))
  redis.call('PEXPIRE', key.windows, MAX_THROTTLE)
end
