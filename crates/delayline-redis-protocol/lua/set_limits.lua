-- State::set_limits. ARGV: now, then what changes, or '' for what stays: the most that are leased,
-- or 0; the most of each group, or 0; 1 if the queue is in order, or 0; the count of the rate, or
-- 0, its period in ms and its burst; until when the queue is held, as `schedule` (layout.rs).
-- Result: 1 if that changed anything.

--@include prelude.lua
--@include lists.lua
--@include scheduling.lua
--@include limits.lua
--@include turns.lua
--@include slots.lua
--@include write.lua

-- All lanes get a turn, a batch at a time: a command takes some thousand arguments. If the
-- rule for slots changes, slots that are held now do not count.
--@inline
local function unblock_all()
  for from = 1, #lanes, MAX_BATCH do
    served = {}
    for i = from, math.min(#lanes, from + MAX_BATCH - 1) do
      unblock(lanes[i])
    end
    redis.call('ZADD', key.turns, unpack(served))
  end
  served = {}
  if forgets then
    redis.call('UNLINK', key.slots)
  end
end

-- READ
local is_silent = redis.call('LLEN', key.bell) == 0
local before, limiter = control.limits, nil
if before == '' then
  control.limits = NO_QUEUE_LIMITS
end
read_limits()

-- DECIDE
if ARGV[2] ~= '' then
  limiter.leased = tonumber(ARGV[2])
end
if ARGV[3] ~= '' then
  limiter.each_group = tonumber(ARGV[3])
end
if ARGV[4] ~= '' then
  limiter.in_order = tonumber(ARGV[4])
end
if ARGV[5] ~= '' then
  limiter.count, limiter.per, limiter.burst = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
  if limiter.count == 0 then
    limiter.paid_at, limiter.paid_ns = 0, 0
  else
    look_at_rate()
    -- Limiter::catch_up
    local ahead = limiter.burst * limiter.interval
    if (limiter.paid_at - now) * NS_PER_MS + limiter.paid_ns > ahead then
      pay()
    end
  end
end
if ARGV[8] ~= '' then
  limiter.held_until = instant(ARGV[8], 1)
end
keep_limits()
local changed = control.limits ~= before
local was_in_order, is_in_order = in_order, limiter.in_order == 1
local most = is_in_order and 1 or limiter.each_group > 0 and limiter.each_group or nil
local is_other = most ~= most_of_group or is_in_order ~= was_in_order
local forgets = not most or not most_of_group or is_in_order ~= was_in_order
local lanes = is_other and redis.call('ZRANGEBYSCORE', key.turns, NO_TURN, NO_TURN)
if is_other then
  redis.call('ZCARD', key.slots)
  look_at_turns()
end
local ring = changed and control.paused == 0 and is_silent

-- WRITE
if changed then
  look_at_minute()
  ask()
  if is_other then
    --@ask ZADD turns, UNLINK slots
  end
  begin_writes()
  if is_other then
    unblock_all()
  end
  write()
  commit()
end
return {ANSWER_RESULTS, now, control.revision, changed and 1 or 0}
