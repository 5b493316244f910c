-- The part of State::apply_and_hint that is not about claims: whether something that is due at `due` has to
-- ring. Sleepers come back by themselves at the instant `armed`, and within SAFETY_POLL whatever happens: so the
-- bell rings only for what is due before that. Sets control.armed and control.armed_until.
local function rings(due)
  local sleepers_know = control.armed_until > now and control.armed <= due
  if sleepers_know or due >= now + SAFETY_POLL or control.paused ~= 0 then
    return false
  end
  control.armed, control.armed_until = due, now + SAFETY_POLL
  return redis.call('LLEN', key.bell) == 0
end
