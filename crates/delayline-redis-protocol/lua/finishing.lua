-- For the scripts that finish messages. What is remembered of them is told in finished.lua.

local FINISHED_RETENTION, MAX_FINISHED = 3600000, 100000

local makes_room -- whether the younger generation becomes the older one

-- Fails here, before any write, if a key holds something else or may not be written. Answers how many
-- messages the younger generation remembers.
local function look_at_finished()
  if has_used(USES_CONTENTS) then
    redis.call('HLEN', key.contents)
    --@ask HDEL contents
  end
  --@ask HSET finished_new, HDEL records, HDEL details
  local count = redis.call('HLEN', key.finished_new)
  makes_room = now - control.finished_since >= FINISHED_RETENTION or count >= MAX_FINISHED
  if makes_room or count == 0 then
    --@ask UNLINK finished_new, UNLINK finished_old, RENAME finished_new, RENAME finished_old
    --@ask PEXPIRE finished_new, PEXPIRE finished_old
  end
  return count
end

-- `pairs` is id, record, id, record, and so on.
local function remember_finished(pairs, count)
  local age = now - control.finished_since
  if age >= 2 * FINISHED_RETENTION then
    redis.call('UNLINK', key.finished_new, key.finished_old)
    control.finished_since, count = now, 0
  elseif makes_room then
    redis.call('UNLINK', key.finished_old)
    if count > 0 then
      redis.call('RENAME', key.finished_new, key.finished_old)
      redis.call('PEXPIRE', key.finished_old, FINISHED_RETENTION)
    end
    control.finished_since, count = now, 0
  end
  redis.call('HSET', key.finished_new, unpack(pairs))
  if count == 0 then
    -- Only to give memory back when the queue falls idle: what counts is `finished_since`.
    redis.call('PEXPIRE', key.finished_new, 2 * FINISHED_RETENTION)
  end
end

-- Contents first: an audit finds the record of one that is gone, and looks through no contents.
local function delete_messages(ids)
  if has_used(USES_CONTENTS) then
    redis.call('HDEL', key.contents, unpack(ids))
  end
  redis.call('HDEL', key.records, unpack(ids))
  redis.call('HDEL', key.details, unpack(ids))
end
