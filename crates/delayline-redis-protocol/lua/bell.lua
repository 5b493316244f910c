-- For the scripts that may ring the bell for what is due.
--
-- `armed` is the instant that the sleepers wait for; they come back by themselves then, and within
-- SAFETY_POLL whatever happens. So the bell rings only for what is due before that.

local SAFETY_POLL = 60000

-- Says whether something that is due at `due` has to ring, and notes that it did. To be asked before
-- the first write: it fails if the key holds something else, or if the user may not ring.
local function rings(due)
  local sleepers_know = control.armed_until > now and control.armed <= due
  if sleepers_know or due >= now + SAFETY_POLL or control.paused ~= 0 then
    return false
  end
  control.armed, control.armed_until = due, now + SAFETY_POLL
  if redis.call('LLEN', key.bell) ~= 0 then
    return false
  end
  --@ask LPUSH bell
  return true
end
