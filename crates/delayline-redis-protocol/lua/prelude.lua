-- What every script begins with: the clock, the control record, the bell, and the byte layouts.
--
-- `key.NAME` becomes the literal KEYS[i] before a script is sent (see keys.rs). Each script is the
-- port of the function of the same name in delayline-core's state.rs. The rules they all follow:
--   * read and check first, then write, and write a message's new place before clearing its old
--     one, so that an error leaves every message where it was;
--   * bounded work: no loop without a limit that the caller or this file sets;
--   * numbers go to redis.call as numbers, never through `..`, which rounds long ones;
--   * the reply is an array that begins with an integer: 0, the clock, the revision, the results.

local unpack = unpack or table.unpack
local byte, sub, format = string.byte, string.sub, string.format

local SCHEMA_VERSION = 1
local MAX_TIMESTAMP = 253402300799999
local NEVER = 281474976710655 -- 2^48 - 1, later than any instant
local LEVEL = 281474976710656 -- 2^48: the score in `due` is priority level * LEVEL + instant
local MAX_EXACT = 9007199254740992 -- 2^53: beyond it Lua's numbers are not exact
local FINISHED_RETENTION, MAX_FINISHED = 3600000, 100000
local JOURNAL_RETENTION, MAX_JOURNAL = 600000, 1000
local SAFETY_POLL = 60000 -- every sleeper comes back within this time

-- Statuses, as in delayline_core::Status.
local SCHEDULED, READY, LEASED, DEAD, ACKED, CANCELLED, PURGED = 1, 2, 3, 4, 5, 6, 7
-- Reasons of death, as in delayline_core::DeathReason.
local MAX_FAILURES, MAX_CRASHES, REJECTED, EXPIRED, UNREADABLE = 1, 2, 3, 4, 5

local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

local function after(delay)
  return math.min(now + delay, MAX_TIMESTAMP)
end

-- Control record ---------------------------------------------------------------------------------

local CONTROL, CONTROL_BYTES = '>I1I8I8I8I8I8I8I1I1I6I6I6I6', 75
local control = {
  revision = 0, sequence = 0, acked = 0, cancelled = 0, purged = 0, expired = 0,
  paused = 0, levels = 0, finished_since = 0, journal_since = 0, armed = 0, armed_until = 0,
}
do
  local stored = redis.call('GET', key.control)
  if stored then
    if byte(stored) ~= SCHEMA_VERSION then
      return {1, byte(stored) or 0}
    end
    if #stored ~= CONTROL_BYTES then
      return {2}
    end
    local c, _ = control, nil
    _, c.revision, c.sequence, c.acked, c.cancelled, c.purged, c.expired, c.paused, c.levels,
      c.finished_since, c.journal_since, c.armed, c.armed_until = struct.unpack(CONTROL, stored)
    for _, count in ipairs{c.revision, c.sequence, c.acked, c.cancelled, c.purged, c.expired} do
      if count >= MAX_EXACT then
        return {2}
      end
    end
  elseif redis.call('ZCARD', key.due) > 0 then
    control.levels = 15 -- the record was lost, the messages were not
  end
end

-- The first write of a script that must also work at maxmemory: it changes nothing (no field has
-- an empty name), it is allowed there, and after it Redis allows the script every other write.
local writing = false
local function begin_writes()
  if not writing then
    redis.call('HDEL', key.records, '')
    writing = true
  end
end

local function commit(changed)
  local c = control
  if changed then
    c.revision = c.revision + 1
  end
  redis.call('SET', key.control, struct.pack(CONTROL, SCHEMA_VERSION, c.revision, c.sequence,
    c.acked, c.cancelled, c.purged, c.expired, c.paused, c.levels, c.finished_since,
    c.journal_since, c.armed, c.armed_until))
end

-- Bell -------------------------------------------------------------------------------------------
--
-- `armed` is the instant that the sleepers wait for; they come back by themselves then, and within
-- SAFETY_POLL whatever happens. So the bell rings only for what is due before that.

local function push_bell()
  if redis.call('LLEN', key.bell) == 0 then
    redis.call('LPUSH', key.bell, '1')
  end
end

-- Says whether something that is due at `due` has to ring; notes that it did.
local function rings(due)
  local sleepers_know = control.armed_until > now and control.armed <= due
  if sleepers_know or due >= now + SAFETY_POLL or control.paused ~= 0 then
    return false
  end
  redis.call('LLEN', key.bell) -- fails here, before any write, if the key holds something else
  control.armed, control.armed_until = due, now + SAFETY_POLL
  return true
end

-- Records ----------------------------------------------------------------------------------------
--
-- records[id]: sequence 8 | enqueued_at 6 | expires_at 6 | digest 8 | level 1 | max_failures 2
--   | max_crashes 2 | headers length 2 | headers | payload.
-- A content of more than SMALL bytes stands apart, so that scripts that need no content do not read
-- it; then the headers length is LARGE, and there follow headers length 2 | payload length 4, and
-- contents[id]: headers length 2 | headers | payload.

local RECORD_BYTES, LARGE_RECORD_BYTES = 35, 41
local SMALL, LARGE = 4096, 65535

-- Whether headers that begin at `position` fill `length` bytes.
local function readable_headers(text, position, length)
  local last = position + length - 1
  if #text < last then
    return false
  end
  while position <= last do
    local name = byte(text, position)
    if position + 2 + name > last then
      return false
    end
    position = position + 3 + name + struct.unpack('>I2', text, position + 1 + name)
  end
  return position == last + 1
end

local function readable_record(record)
  if not record or #record < RECORD_BYTES or byte(record, 29) > 3 then
    return false
  end
  local enqueued_at, expires_at = struct.unpack('>I6I6', record, 9)
  if enqueued_at > MAX_TIMESTAMP or expires_at > MAX_TIMESTAMP and expires_at ~= NEVER then
    return false
  end
  local headers = struct.unpack('>I2', record, 34)
  if headers == LARGE then
    return #record == LARGE_RECORD_BYTES
  end
  return readable_headers(record, RECORD_BYTES + 1, headers)
end

-- The lengths of headers and payload.
local function content_lengths(record)
  local headers = struct.unpack('>I2', record, 34)
  if headers == LARGE then
    return struct.unpack('>I2I4', record, 36)
  end
  return headers, #record - RECORD_BYTES - headers
end

-- A record with its content, wherever that stands; false if it is not there.
local function whole_record(id, record)
  if struct.unpack('>I2', record, 34) ~= LARGE then
    return record
  end
  local content = redis.call('HGET', key.contents, id)
  local headers, payload = content_lengths(record)
  if not content or #content ~= 2 + headers + payload
    or struct.unpack('>I2', content) ~= headers or not readable_headers(content, 3, headers) then
    return false
  end
  return sub(record, 1, 33) .. content
end

-- The id's member in `due`, `leased` and `dead`: ties in a sorted set go by the bytes of the
-- member, so the sequence number in front keeps first-in-first-out.
local function member_of(record, id)
  return sub(record, 1, 8) .. id
end

-- Notes that the level is in use, so that claims look there.
local function due_score(level, due)
  control.levels = bit.bor(control.levels, 2 ^ level)
  return level * LEVEL + due
end

local function level_of(record)
  return byte(record, 29)
end

local function digest_of(record)
  return sub(record, 21, 28)
end

-- Deletes what stands about messages that are finished. The caller has called HLEN on `contents`
-- before its first write.
local function delete_messages(ids, large_contents)
  redis.call('HDEL', key.records, unpack(ids))
  redis.call('HDEL', key.details, unpack(ids))
  if large_contents > 0 then
    redis.call('HDEL', key.contents, unpack(ids))
  end
end

-- Details ----------------------------------------------------------------------------------------
--
-- details[id], absent until the message is first claimed or dies:
--   phase 1 | settled 1 | epoch 8 | claim id 16 | sequence 8 | digest 8 | level 1
--   | max_failures 2 | max_crashes 2 | due 6 | failures 2 | crashes 2 | reason 1
--   | first error length 2 | first error | last error
-- `settled` tells how the latest lease was settled: 0 not at all, or the outcome's kind.

local DETAILS, DETAILS_BYTES = '>I1I1c24c8c13I6I2I2I1I2', 60
local WAITING_PHASE, LEASED_PHASE, CANCELLING_PHASE, DEAD_PHASE = 0, 1, 2, 3
local NO_LEASE = string.rep('\0', 24)

local function readable_details(details)
  return #details >= DETAILS_BYTES and byte(details) <= DEAD_PHASE and byte(details, 43) <= 3
    and struct.unpack('>I6', details, 48) <= MAX_TIMESTAMP
    and #details >= DETAILS_BYTES + struct.unpack('>I2', details, 59)
end

-- `lease` is epoch and claim id as they stand; `fixed` is digest, level and limits.
local function read_details(details)
  local d, n = {}, 0
  d.phase, d.settled, d.lease, d.sequence, d.fixed, d.due, d.failures, d.crashes, d.reason, n =
    struct.unpack(DETAILS, details)
  d.first_error = sub(details, DETAILS_BYTES + 1, DETAILS_BYTES + n)
  d.last_error = sub(details, DETAILS_BYTES + n + 1)
  d.level, d.max_failures, d.max_crashes = struct.unpack('>I1I2I2', d.fixed, 9)
  return d
end

-- The details of a message that was never claimed.
local function new_details(record)
  return {
    phase = WAITING_PHASE, settled = 0, lease = NO_LEASE, sequence = sub(record, 1, 8),
    fixed = sub(record, 21, 33), due = 0, failures = 0, crashes = 0, reason = 0,
    first_error = '', last_error = '',
  }
end

local function write_details(d)
  return struct.pack(DETAILS, d.phase, d.settled, d.lease, d.sequence, d.fixed, d.due,
    d.failures, d.crashes, d.reason, #d.first_error) .. d.first_error .. d.last_error
end

local function note_error(d, text)
  if text ~= '' then
    if d.first_error == '' then
      d.first_error = text
    end
    d.last_error = text
  end
end

local function bury(d, reason)
  d.phase, d.reason = DEAD_PHASE, reason
end

-- An instant in an argument: 1 byte (1: from now on, 0: absolute), 6 bytes of milliseconds.
local function instant(argument, position)
  local relative, ms = struct.unpack('>I1I6', argument, position)
  if relative == 1 then
    return after(ms)
  end
  return ms
end

-- Finished messages ------------------------------------------------------------------------------
--
-- finished[id]: status 1 | digest 8 | the lease it was settled with, if any 24.
-- Two generations; see Generations in delayline-core for the rules of forgetting.

local function remembered(past)
  local known = past and (#past == 9 or #past == 33) and byte(past) >= ACKED and byte(past) <= PURGED
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
    found[i] = remembered(new[i]) or remembered(old[i]) or false
  end
  return found
end

-- `pairs` is id, record, id, record, and so on. The caller has read HLEN before its first write.
local function remember_finished(pairs, count)
  local age = now - control.finished_since
  if age >= 2 * FINISHED_RETENTION then
    redis.call('UNLINK', key.finished_new, key.finished_old)
    control.finished_since, count = now, 0
  elseif age >= FINISHED_RETENTION or count >= MAX_FINISHED then
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
