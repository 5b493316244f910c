-- What every script begins with: the clock and the control record.
--
-- A script carries out the operation of its name, in the steps of the function of that name in
-- delayline-core's state.rs. It has three phases, each marked:
--   READ    gets what the operation is about.
--   DECIDE  computes the results, and lists what is to be written. In rare cases it reads more.
--   WRITE   asks whether every write will be possible, and then makes them (write.lua). Redis does
--           not roll back, so nothing may fail once it has begun.
-- Only `claim` writes twice: it returns expired leases to the queue before it looks for ready
-- messages.
--
-- All loops are bounded, by the arguments or by a constant. Numbers go to redis.call as numbers,
-- or, where it has to be fast, as text that format('%d', ...) makes; `..` rounds long ones. The
-- reply is an array that begins with an integer: ANSWER_RESULTS, the clock, the revision, the
-- results.
--
-- script.rs puts the files together:
--   --@include FILE      becomes the file.
--   NAMES IN CAPITALS    become their values, which layout.rs knows. A field of one byte is its
--                        position; a longer one is its first and last position, as `sub` takes
--                        them, and NAME_FROM is the first alone.
--   key.NAME             becomes the literal KEYS[i].
--   --@inline            The function below is put in the place of each of its calls, and sees what
--                        is declared there. A function that only such functions use is defined in
--                        them: every function that is defined costs the call something, used or
--                        not.
--   --@with NAME         The block below is left out where no NAME is declared.
--   --@ask COMMAND key   fails if the user may not run the command; `all` means every call in the
--                        script.
--   --@first COMMAND key  is the first write. It needs no question: if it fails, nothing has been
--                        done. A block that writes before it asks with `--@ask !COMMAND key`.
--   --@look key          fails if the key holds another type; left out if --@reads names the key.

local unpack = unpack or table.unpack
local byte, sub, format = string.byte, string.sub, string.format

-- The clock in milliseconds, and by how many microseconds it is past them.
local now, micros = tonumber(ARGV[1]), 0
if not now then
  local time = redis.call('TIME')
  micros = time[2] % 1000
  now = time[1] * 1000 + (time[2] - micros) / 1000
end

local function after(delay)
  return math.min(now + delay, MAX_TIMESTAMP)
end

local control
do
  local stored = redis.call('GET', key.control)
  local version = stored and (byte(stored, CONTROL_VERSION) or 0) or SCHEMA_VERSION
  if version > 0 and version ~= SCHEMA_VERSION then
    -- The library tells an older one from a newer one, and from a conversion.
    return {ANSWER_OTHER_VERSION, byte(stored, CONVERSION_HEAD)}
  elseif version == 0 or stored and #stored < CONTROL_BYTES then
    return {ANSWER_DAMAGED}
  end
  local _, revision, sequence, acked, cancelled, purged, relayed, expired, replaced, paused, uses,
    finished_since, journal_since, armed, armed_until, latest_minute =
    struct.unpack(CONTROL_FORMAT, stored or string.rep('\0', CONTROL_BYTES))
  if uses > USES_ALL then
    return {ANSWER_NEWER_FEATURE, byte(stored, CONTROL_NEEDS)}
  end
  if stored and #stored > CONTROL_BYTES and #stored ~= LIMITED_CONTROL_BYTES then
    return {ANSWER_DAMAGED}
  end
  if math.max(revision, sequence, acked, cancelled, purged, expired, relayed, replaced) >= MAX_EXACT then
    return {ANSWER_DAMAGED}
  end
  if not stored and redis.call('ZCARD', key.index) > 0 then
    uses = USES_ALL -- the record was lost, the messages were not
  end
  control = {
    revision = revision, sequence = sequence, acked = acked, cancelled = cancelled,
    purged = purged, relayed = relayed, expired = expired, paused = paused, uses = uses,
    finished_since = finished_since, journal_since = journal_since, armed = armed,
    armed_until = armed_until, replaced = replaced, minute = latest_minute, stored = stored,
    known_uses = uses, limits = stored and sub(stored, QUEUE_LIMITS_OFFSET) or '',
  }
end
