-- What is remembered of finished messages, in two generations; see Generations in delayline-core for
-- the rules of forgetting.

local function remembered(past)
  local known = (#past == FINISHED_BYTES or #past == FINISHED_BYTES + LEASE_BYTES
      or #past == FINISHED_BYTES + LEASE_BYTES + TOKENS_BYTES)
    and byte(past, FINISHED_STATUS) >= ACKED and byte(past, FINISHED_STATUS) <= RELAYED
  return known and past
end

-- What is remembered of the ids that are the arguments `first` to `last`.
local function finished_of(first, last)
  local age, new, old = now - control.finished_since, {}, {}
  if last >= first and age < 2 * FINISHED_RETENTION then
    new = redis.call('HMGET', key.finished_new, unpack(ARGV, first, last))
  end
  if last >= first and age < FINISHED_RETENTION then
    old = redis.call('HMGET', key.finished_old, unpack(ARGV, first, last))
  end
  local found = {}
  for i = 1, last - first + 1 do
    found[i] = new[i] and remembered(new[i]) or old[i] and remembered(old[i])
  end
  return found
end
