-- State::finish: ends a message and counts how. `lease` is the one that it was settled with, or ''; `update` is
-- what stands in `updates`, if anything does. Sets new_finished, gone and a counter.
local function finish(id, digest, status, lease, update)
  local n = #gone
  if update and #update >= UPDATES_BYTES then
    lease = (lease == '' and NO_LEASE or lease) .. sub(update, UPDATES_TOKENS)
  end
  gone[n + 1] = id
  new_finished[2 * n + 1], new_finished[2 * n + 2] = id, string.char(status) .. digest .. lease
  local counter = status == ACKED and 'acked' or status == PURGED and 'purged' or 'cancelled'
  control[counter] = control[counter] + 1
end

-- How many messages the younger generation remembers, and whether it becomes the older one now. Fails if
-- that may not be written.
local finished_count, finished_rotates
--@inline
local function count_finished()
  --@ask HSET finished_new
  finished_count = redis.call('HLEN', key.finished_new)
  finished_rotates = now - control.finished_since >= FINISHED_RETENTION or finished_count >= MAX_FINISHED
  if finished_rotates or finished_count == 0 then
    --@ask UNLINK finished_new, UNLINK finished_old, RENAME finished_new, RENAME finished_old
    --@ask PEXPIRE finished_new, PEXPIRE finished_old
  end
end

-- Generations::rotate. Sets finished_count.
--@inline
local function rotate_finished()
  if now - control.finished_since >= 2 * FINISHED_RETENTION then
    redis.call('UNLINK', key.finished_new, key.finished_old)
    control.finished_since, finished_count = now, 0
  elseif finished_rotates then
    redis.call('UNLINK', key.finished_old)
    if finished_count > 0 then
      redis.call('RENAME', key.finished_new, key.finished_old)
      redis.call('PEXPIRE', key.finished_old, FINISHED_RETENTION)
    end
    control.finished_since, finished_count = now, 0
  end
end
