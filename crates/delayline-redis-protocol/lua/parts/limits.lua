-- What limits the deliveries of a queue (`queue_limits` in layout.rs, behind the control record).

-- Sets limiter, which stays nil in a queue that has none.
--@inline
local function read_limits()
  if control.limits ~= '' then
    limiter = {}
    limiter.leased, limiter.each_group, limiter.in_order, limiter.count, limiter.per, limiter.burst, limiter.held_until, limiter.paid_at, limiter.paid_ns =
      struct.unpack(QUEUE_LIMITS_FORMAT, control.limits)
    look_at_rate()
  end
end

-- Rate::interval_ns. Reads limiter, and sets its interval: 0 if there is no rate.
--@inline
local function look_at_rate()
  limiter.interval = limiter.count > 0 and math.max(1, math.ceil(limiter.per * NS_PER_MS / limiter.count)) or 0
end

-- Limiter::open_at: the instant from which on one more message may be delivered; NEVER while as
-- many are leased as may be. Reads limiter and leased, which is nil for a relay; sets open_at.
--@inline
local function look_when_open()
  if leased and limiter.leased > 0 and leased >= limiter.leased then
    open_at = NEVER
  else
    open_at = limiter.held_until
    if limiter.interval > 0 then
      local burst = (limiter.burst - 1) * limiter.interval
      open_at = math.max(open_at, limiter.paid_at + math.ceil((limiter.paid_ns - burst) / NS_PER_MS))
    end
    open_at = math.min(open_at, MAX_TIMESTAMP)
  end
end

-- Sets leased, if there is a limit of that.
--@inline
local function count_leased()
  if limiter.leased > 0 then
    leased = redis.call('ZCOUNT', key.index, FIRST_LEASED, LAST_LEASED)
  end
end

-- Limiter::pay, for this many nanoseconds from now on. Reads limiter and ahead.
--@inline
local function pay()
  local ms = now + math.floor(ahead / NS_PER_MS)
  limiter.paid_at = math.min(ms, MAX_TIMESTAMP)
  limiter.paid_ns = ms >= MAX_TIMESTAMP and 0 or ahead % NS_PER_MS
end

--@inline
local function keep_limits()
  control.limits = struct.pack(QUEUE_LIMITS_FORMAT, limiter.leased, limiter.each_group, limiter.in_order, limiter.count,
    limiter.per, limiter.burst, limiter.held_until, limiter.paid_at, limiter.paid_ns)
  if control.limits == NO_QUEUE_LIMITS then
    control.limits = ''
  else
    control.uses = bit.bor(control.uses, USES_LIMITS)
  end
end
