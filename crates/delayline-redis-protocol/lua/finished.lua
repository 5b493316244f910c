-- Finished messages, for the scripts that ask for them.
--
-- finished[id]: status 1 | digest 8 | the lease it was settled with, if any 24.
-- Two generations; see Generations in delayline-core for the rules of forgetting.

local FINISHED_RETENTION = 3600000

local function remembered(past)
  local known = (#past == 9 or #past == 33) and byte(past) >= ACKED and byte(past) <= PURGED
  return known and past
end

local function finished_of(ids)
  local age, new, old = now - control.finished_since, {}, {}
  if #ids > 0 and age < 2 * FINISHED_RETENTION then
    new = redis.call('HMGET', key.finished_new, unpack(ids))
  end
  if #ids > 0 and age < FINISHED_RETENTION then
    old = redis.call('HMGET', key.finished_old, unpack(ids))
  end
  local found = {}
  for i = 1, #ids do
    found[i] = new[i] and remembered(new[i]) or old[i] and remembered(old[i])
  end
  return found
end
