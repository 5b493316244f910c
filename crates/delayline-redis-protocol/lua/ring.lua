-- Wakeup::ring: gives a hint to one who waits. ARGV: now.

--@include prelude.lua
--@include write.lua

-- READ
local ring = redis.call('LLEN', key.bell) == 0

-- WRITE
if ring then
  --@ask LPUSH bell
  begin_writes()
  redis.call('LPUSH', key.bell, '1')
end
return {ANSWER_RESULTS, now, control.revision}
