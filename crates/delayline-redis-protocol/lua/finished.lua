-- Finished messages, for the scripts that ask for them.
--
-- finished[id]: status 1 | digest 8 | the lease it was settled with, if any 24.
-- Two generations; see Generations in delayline-core for the rules of forgetting.

local FINISHED_RETENTION = 3600000

local function remembered(past)
  local known = (#past == 9 or #past == 33) and byte(past) >= ACKED and byte(past) <= PURGED
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
