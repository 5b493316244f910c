-- Limiter::set. ARGV: now, then what changes, or '' for what stays: the most that are leased, or 0;
-- the count of the rate, or 0, its period in ms and its burst; until when the queue is held, as
-- `schedule` (layout.rs).
-- Result: 1 if that changed anything.

--@include prelude.lua
--@include scheduling.lua
--@include limits.lua
--@include write.lua

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
  limiter.count, limiter.per, limiter.burst = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
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
if ARGV[6] ~= '' then
  limiter.held_until = instant(ARGV[6], 1)
end
keep_limits()
local changed = control.limits ~= before
local ring = changed and control.paused == 0 and is_silent

-- WRITE
if changed then
  look_at_minute()
  ask()
  begin_writes()
  write()
  commit()
end
return {ANSWER_RESULTS, now, control.revision, changed and 1 or 0}
