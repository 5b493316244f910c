--@include limits.lua

-- State::next_claimable: the earliest due instant or end of a lease, of what is there after the
-- writes.
-- Reads lease_end, first_left, which is nil while the queue is paused, and leaving, how many
-- entries leave the levels. Reads limiter and leased, too. Sets next.
--@inline
local function next_claimable()
  if first_left then
    if limiter and first_left < NEVER then
      local open_at
      look_when_open()
      first_left = math.max(first_left, open_at)
    end
    next = math.min(first_left, lease_end or NEVER)
    if next == NEVER then
      next = nil
      if control.uses ~= USES_ALL and (redis.call('ZCOUNT', key.index, '0', LAST_WAITING) > leaving
        or control.uses < USES_GROUPS and redis.call('ZCOUNT', key.index, FIRST_IN_LANES, LAST_GROUPED) > 0) then
        control.uses, changed, next = USES_ALL, true, now -- which levels are used was not known
      end
    end
  end
end

-- The part of State::apply_and_hint that is about claims and relays. A worker that got less than it
-- asked for sleeps until `next`. One that is full does not: the next message has to ring for
-- another worker then, and what is left over or due soon rings at once. An idle one that finds
-- nothing new does not write each time. Where as many are leased as may be, the next event is the
-- end of a lease, and one sleeper that wakes up before it is enough.
-- Reads more, next, sleeps and capped; sets hands_on, is_news, ring, control.armed and
-- control.armed_until.
--@inline
local function tell_sleepers()
  local armed, armed_until = 0, 0
  if sleeps then
    armed, armed_until = next or NEVER, now + SAFETY_POLL
  end
  if capped and next and not more and not sleeps and control.armed > now and control.armed <= next
    and control.armed_until > now then
    armed, armed_until = control.armed, control.armed_until
  end
  hands_on = more or not sleeps and armed == 0 and next and next < now + SAFETY_POLL
  ring = hands_on and redis.call('LLEN', key.bell) == 0
  is_news = armed ~= control.armed or math.abs(armed_until - control.armed_until) > STEADY
  control.armed, control.armed_until = armed, armed_until
end
