-- Finished messages, remembered in two generations; see Generations in delayline-core for the rules
-- of forgetting.

-- The remembered value, or false if it is malformed.
local function remembered(past)
  local known = (#past == FINISHED_BYTES or #past == FINISHED_BYTES + LEASE_BYTES
      or #past == FINISHED_BYTES + LEASE_BYTES + TOKENS_BYTES)
    and byte(past, FINISHED_STATUS) >= ACKED and byte(past, FINISHED_STATUS) <= RELAYED
  return known and past
end

-- When the younger generation began. Reads since, which the control record says; sets since, and
-- renamed if there is only an older generation, which then counts as the younger one.
--
-- A torn operation begins a generation of which the control record does not know. So each
-- generation holds its beginning under the empty name, which is no id.
--@inline
local function find_generations()
  if now - since >= FINISHED_RETENTION then
    local began = redis.call('HGET', key.finished_new, '')
    if not began and now - since < 2 * FINISHED_RETENTION then
      began = redis.call('HGET', key.finished_old, '')
      renamed = began
    end
    if began and #began == INSTANT_BYTES then
      since = math.max(since, (struct.unpack(INSTANT, began)))
    end
  end
end

-- The remembered values of the ids in the arguments `first` to `last`.
local function finished_of(first, last)
  local found = {}
  if last < first then
    return found
  end
  local since, renamed, new, old = control.finished_since, false, {}, {}
  find_generations()
  local age = now - since
  if age < 2 * FINISHED_RETENTION and not renamed then
    new = redis.call('HMGET', key.finished_new, unpack(ARGV, first, last))
  end
  if age < FINISHED_RETENTION or renamed and age < 2 * FINISHED_RETENTION then
    old = redis.call('HMGET', key.finished_old, unpack(ARGV, first, last))
  end
  for i = 1, last - first + 1 do
    found[i] = new[i] and remembered(new[i]) or old[i] and remembered(old[i])
  end
  return found
end
