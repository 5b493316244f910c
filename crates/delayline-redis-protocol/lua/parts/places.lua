-- Where messages are: one sorted set, `index`, has each of them once. The score is a band and an
-- instant, as `member` in layout.rs describes it, so one ZADD moves a message.

-- Entry::place: the band and the instant of a member; nil if it has none that can be.
local function place_of(member)
  local score = tonumber(redis.call('ZSCORE', key.index, member) or -1)
  local instant = score % BAND
  if score >= 0 and score < BANDS * BAND and instant <= MAX_TIMESTAMP then
    return (score - instant) / BAND, instant
  end
end
