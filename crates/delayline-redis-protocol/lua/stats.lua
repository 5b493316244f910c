-- State::stats. ARGV: now. Results: scheduled, ready, leased, dead, paused, earliest due instant or
-- -1, how many messages were enqueued, acked, cancelled, purged, relayed, died because they
-- expired, and were replaced, and the other totals as they are stored; then the limits: the most
-- leased, the most of each group, 1 if the queue is in order, the rate's count, period in ms and
-- burst, when it is open, and until when the queue is held, or 0 for what there is not; then how
-- many groups wait.

--@include prelude.lua
--@include limits.lua
--@include records.lua
--@include details.lua
--@include scheduling.lua
--@include lanes.lua

local function count(band, to)
  return redis.call('ZCOUNT', key.index, band * BAND, band * BAND + to)
end

local scheduled, ready, earliest, groups = 0, 0, nil, 0
for level = 0, LAST_LEVEL do
  local base = level * BAND
  local first = bit.band(control.uses, 2 ^ level) ~= 0 and redis.call('ZRANGEBYSCORE', key.index, base,
    base + MAX_TIMESTAMP, 'WITHSCORES', 'LIMIT', 0, 1)[2]
  if first then
    first = tonumber(first) - base
    earliest = math.min(earliest or NEVER, first)
    local due = first <= now and count(level, now) or 0
    scheduled, ready = scheduled + count(level, MAX_TIMESTAMP) - due, ready + due
  end
end
if control.uses >= USES_GROUPS then
  local first =
    redis.call('ZRANGEBYSCORE', key.index, FIRST_GROUPED, LAST_GROUPED, 'WITHSCORES', 'LIMIT', 0, 1)
  if first[2] then
    earliest = math.min(earliest or NEVER, tonumber(first[2]) - AT_GROUPED * BAND)
  end
  -- Turns::groups
  groups = redis.call('ZCARD', key.turns) - (redis.call('ZSCORE', key.turns, '') and 1 or 0)
  local in_lanes, due = count(AT_LANES, MAX_TIMESTAMP), count(AT_GROUPED, now)
  scheduled, ready = scheduled + count(AT_GROUPED, MAX_TIMESTAMP) - due, ready + in_lanes + due
  -- State::oldest_in_lanes
  local lanes = {}
  if in_lanes > 0 then
    lanes = redis.call('ZRANGEBYSCORE', key.turns, '0', '+inf', 'LIMIT', 0, OLDEST_LANES)
    for _, lane in ipairs(redis.call('ZREVRANGEBYSCORE', key.turns, '(0', '-inf', 'LIMIT', 0, OLDEST_LANES - #lanes)) do
      lanes[#lanes + 1] = lane
    end
  end
  for _, lane in ipairs(lanes) do
    local score = #lane == LANE_BYTES and lane_score(lane)
    local member = score and redis.call('ZRANGEBYSCORE', key.index, score, score, 'LIMIT', 0, 1)[1]
    if member then
      local id = id_of(member)
      local record = redis.call('HGET', key.records, id) or ''
      earliest = math.min(earliest or NEVER, due_in_lane(id, record, redis.call('HGET', key.details, id)))
    end
  end
end
-- Limiter::shown
local limiter, leased, open_at = nil, nil, 0
read_limits()
if limiter then
  local held_until = limiter.held_until
  limiter.held_until = 0
  look_when_open()
  limiter.held_until = math.min(held_until, MAX_TIMESTAMP)
end
limiter = limiter or {leased = 0, each_group = 0, in_order = 0, count = 0, per = 0, burst = 0, held_until = 0}
return {
  ANSWER_RESULTS, now, control.revision, scheduled, ready, count(AT_LEASED, MAX_TIMESTAMP),
  count(AT_DEAD, MAX_TIMESTAMP), control.paused, earliest or -1, control.sequence, control.acked,
  control.cancelled, control.purged, control.relayed, control.expired, control.replaced,
  redis.call('GETRANGE', key.totals, '0', format('%d', TOTALS_BYTES - 1)),
  limiter.leased, limiter.each_group, limiter.in_order, limiter.count, limiter.per, limiter.burst, open_at,
  limiter.held_until, groups,
}
