-- State::set_paused. ARGV: now, 1 to pause or 0 to resume. Result: 1 if that changed anything.

--@include prelude.lua
--@include write.lua

-- READ
local paused = tonumber(ARGV[2])
local is_silent = redis.call('LLEN', key.bell) == 0

-- DECIDE
local changed = control.paused ~= paused
local ring = changed and paused == 0 and is_silent
control.paused = paused

-- WRITE
if changed then
  look_at_minute()
  ask()
  begin_writes()
  write()
  commit()
end
return {ANSWER_RESULTS, now, control.revision, changed and 1 or 0}
