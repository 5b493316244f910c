-- The state of the queue before this call, as `point` in layout.rs describes it. No write may have
-- been made yet.

-- How many messages of a band have an instant up to this one.
local function count_to(band, instant)
  return redis.call('ZCOUNT', key.index, format('%d', band * BAND), format('%d', band * BAND + instant))
end

-- State::point. Messages that are due at `at` count as ready.
local function point(at)
  local waiting, ready = 0, 0
  for level = 0, LAST_LEVEL do
    waiting, ready = waiting + count_to(level, MAX_TIMESTAMP), ready + count_to(level, at)
  end
  if control.known_uses >= USES_GROUPS then
    local in_lanes = count_to(AT_LANES, MAX_TIMESTAMP)
    waiting = waiting + in_lanes + count_to(AT_GROUPED, MAX_TIMESTAMP)
    ready = ready + in_lanes + count_to(AT_GROUPED, at)
  end
  return struct.pack(POINT_FORMAT, at, waiting - ready, ready, count_to(AT_LEASED, MAX_TIMESTAMP),
    count_to(AT_DEAD, MAX_TIMESTAMP)) .. (control.stored and sub(control.stored, CONTROL_COUNTS) or NO_COUNTS)
    .. redis.call('GETRANGE', key.totals, '0', format('%d', TOTALS_BYTES - 1))
end
