-- State::stats. ARGV: now. Results: scheduled, ready, leased, dead, paused, earliest due instant or
-- -1, and the totals of enqueued, acked, cancelled, purged and expired messages.

--@include prelude.lua

local scheduled, ready, earliest = 0, 0, nil
for level = 0, LAST_LEVEL do
  local base = level * LEVEL
  local first = redis.call('ZRANGEBYSCORE', key.due, base, base + MAX_TIMESTAMP,
    'WITHSCORES', 'LIMIT', 0, 1)
  if first[2] then
    earliest = math.min(earliest or NEVER, tonumber(first[2]) - base)
    local waiting = redis.call('ZCOUNT', key.due, base, base + MAX_TIMESTAMP)
    local due = redis.call('ZCOUNT', key.due, base, base + now)
    scheduled, ready = scheduled + waiting - due, ready + due
  end
end
return {
  ANSWER_RESULTS, now, control.revision, scheduled, ready, redis.call('ZCARD', key.leased),
  redis.call('ZCARD', key.dead), control.paused, earliest or -1, control.sequence, control.acked,
  control.cancelled, control.purged, control.expired,
}
