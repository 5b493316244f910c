-- Wakeup::ring: gives a hint to one who waits. ARGV: now.

--@include prelude.lua

if redis.call('LLEN', key.bell) == 0 then
  --@ask LPUSH bell
  redis.call('HDEL', key.records, '') -- for the reason that begin_writes in writing.lua has
  redis.call('LPUSH', key.bell, '1')
end
return {0, now, control.revision}
