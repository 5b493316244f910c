--@include limits.lua

-- The part of State::apply_and_hint that is not about claims: whether something that is due at
-- `due` has to ring. Sleepers come back by themselves at the instant `armed`, and within
-- SAFETY_POLL whatever happens: so the bell rings only for what is due before that. Where as many
-- are leased as may be, only the end of one rings: `freed` of those in the index end with this
-- call. An end of a lease (`of_lease`) is not held back by limits. Sets control.armed and
-- control.armed_until.
local function rings(due, freed, of_lease)
  local limiter, open_at
  if not of_lease then
    read_limits()
    if limiter then
      local leased = 0
      count_leased()
      leased = leased - (freed or 0)
      look_when_open()
      due = math.max(due, open_at)
    end
  end
  local sleepers_know = control.armed_until > now and control.armed <= due
  if sleepers_know or due >= now + SAFETY_POLL or control.paused ~= 0 then
    return false
  end
  control.armed, control.armed_until = due, now + SAFETY_POLL
  return redis.call('LLEN', key.bell) == 0
end
