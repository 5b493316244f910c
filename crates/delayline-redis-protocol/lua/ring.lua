-- Wakeup::ring: gives a hint to one who waits. ARGV: now.

--@include prelude.lua

if redis.call('LLEN', key.bell) == 0 then
  begin_writes()
  redis.call('LPUSH', key.bell, '1')
end
return {0, now, control.revision}
