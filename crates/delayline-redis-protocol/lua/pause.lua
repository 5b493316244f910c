-- State::set_paused. ARGV: now, 1 to pause or 0 to resume. Result: 1 if that changed anything.

local paused = tonumber(ARGV[2])
local changed = control.paused ~= paused
if changed then
  redis.call('HLEN', key.records)
  redis.call('LLEN', key.bell)
  control.paused = paused
  begin_writes()
  if paused == 0 then
    push_bell()
  end
  commit(true)
end
return {0, now, control.revision, changed and 1 or 0}
