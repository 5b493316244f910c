-- State::set_paused. ARGV: now, 1 to pause or 0 to resume. Result: 1 if that changed anything.

--@include prelude.lua
--@include writing.lua

local paused = tonumber(ARGV[2])
local changed = control.paused ~= paused
if changed then
  local silent = redis.call('LLEN', key.bell) == 0
  control.paused = paused
  --@ask LPUSH bell, SET control
  begin_writes()
  if paused == 0 and silent then
    redis.call('LPUSH', key.bell, '1')
  end
  commit(true)
end
return {0, now, control.revision, changed and 1 or 0}
