-- State::finish: ends a message and counts how. `lease` is the one that it was settled with, or '';
-- `update` is what stands in `updates`, if anything does. Sets new_finished, gone and a counter.
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

-- How many fields the younger generation has, and whether it becomes the older one now, or did so
-- in an operation that was torn. Fails if that may not be written.
local finished_count, finished_rotates, finished_renamed
--@inline
local function count_finished()
  --@ask HSET finished_new
  local since, renamed = control.finished_since, false
  find_generations()
  control.finished_since, finished_renamed = since, renamed
  finished_count = redis.call('HLEN', key.finished_new)
  -- One field more than ids, which tells when it began.
  finished_rotates = now - since >= FINISHED_RETENTION or finished_count > MAX_FINISHED
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
    if not finished_renamed then
      redis.call('UNLINK', key.finished_old)
    end
    if finished_count > 0 then
      redis.call('RENAME', key.finished_new, key.finished_old)
      redis.call('PEXPIRE', key.finished_old, FINISHED_RETENTION)
    end
    control.finished_since, finished_count = now, 0
  end
  if finished_count == 0 then
    local n = #new_finished
    new_finished[n + 1], new_finished[n + 2] = '', struct.pack(INSTANT, control.finished_since)
  end
end
