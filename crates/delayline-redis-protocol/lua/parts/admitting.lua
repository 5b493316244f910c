-- For claim and relay: how many messages the limits of the queue let through.

-- Limiter::admit. Reads limiter, leased and max; sets max, ahead, passed and changed. `ahead` are
-- the nanoseconds until all that was delivered is paid for, `passed` those of the present
-- millisecond. The clock is not read again: the server may have waited since `now`.
--@inline
local function admit()
  if limiter.interval > 0 then
    passed = micros * NS_PER_US
    local total = limiter.burst * limiter.interval
    ahead = math.max(0, (limiter.paid_at - now) * NS_PER_MS + limiter.paid_ns - passed)
    if ahead > total then
      ahead = total + passed
      pay()
      keep_limits()
      ahead, changed = total, true
    end
    local spare = total - ahead
    max = math.min(max, (spare - spare % limiter.interval) / limiter.interval)
  end
  if leased and limiter.leased > 0 then
    max = math.min(max, math.max(0, limiter.leased - leased))
  end
  if limiter.held_until > now then
    max = 0
  end
end

-- Limiter::spend. Reads limiter, delivered, ahead and passed.
--@inline
local function spend()
  if limiter.interval > 0 and delivered > 0 then
    ahead = ahead + delivered * limiter.interval + passed
    pay()
    keep_limits()
  end
end
