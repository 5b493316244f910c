-- What every script begins with: the clock and the control record.
--
-- Each script is the port of the function of the same name in delayline-core's state.rs. The rules
-- they all follow:
--   * read and check first, then write, and write a message's new place before clearing its old
--     one, so that an error leaves every message where it was;
--   * ask whether the user may run each write, before the first one (`--@ask COMMAND key, ...`; `all`
--     stands for everything that the script calls): an error after it would leave half an operation;
--   * bounded work: no loop without a limit that the caller or these files set;
--   * few commands, and few functions: a command costs about as much as the work on one message,
--     and a function that is defined costs each call something, so what is rarely needed is
--     included where it is;
--   * numbers go to redis.call as numbers, or where it has to be fast as text that
--     format('%d', ...) makes; `..` rounds long ones;
--   * the reply is an array that begins with an integer: 0, the clock, the revision, the results.
--
-- script.rs puts the files together. There, `--@include FILE` becomes the file, `key.NAME` the
-- literal KEYS[i], and the name of a constant, in capitals, its value.

local unpack = unpack or table.unpack
local byte, sub, format = string.byte, string.sub, string.format

local SCHEMA_VERSION = 1
local MAX_TIMESTAMP = 253402300799999
local NEVER = 281474976710655 -- 2^48 - 1, later than any instant
local LEVEL = 281474976710656 -- 2^48: the score in `due` is priority level * LEVEL + instant
local MAX_EXACT = 9007199254740992 -- 2^53: beyond it Lua's numbers are not exact

-- Statuses, as in delayline_core::Status.
local SCHEDULED, READY, LEASED, DEAD, ACKED, CANCELLED, PURGED = 1, 2, 3, 4, 5, 6, 7
-- Reasons of death, as in delayline_core::DeathReason.
local MAX_FAILURES, MAX_CRASHES, REJECTED, EXPIRED, UNREADABLE = 1, 2, 3, 4, 5
-- The first byte of details.
local WAITING_PHASE, LEASED_PHASE, CANCELLING_PHASE, DEAD_PHASE = 0, 1, 2, 3

local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

local function after(delay)
  return math.min(now + delay, MAX_TIMESTAMP)
end

-- Control record ---------------------------------------------------------------------------------
--
-- `uses` has a bit for each priority level that was ever used, so that claims look there only, and
-- one for large contents.

local CONTROL, CONTROL_BYTES = '>I1I8I8I8I8I8I8I1I1I6I6I6I6', 75
local USES_CONTENTS, USES_ALL = 16, 31
local control
do
  local stored = redis.call('GET', key.control)
  local version = stored and (byte(stored) or 0) or SCHEMA_VERSION
  if version > 0 and version ~= SCHEMA_VERSION then
    return {1, version} -- the library tells an older one from a newer one
  elseif version == 0 or stored and #stored ~= CONTROL_BYTES then
    return {2}
  end
  local _, revision, sequence, acked, cancelled, purged, expired, paused, uses, finished_since,
    journal_since, armed, armed_until =
    struct.unpack(CONTROL, stored or string.rep('\0', CONTROL_BYTES))
  if math.max(revision, sequence, acked, cancelled, purged, expired) >= MAX_EXACT then
    return {2}
  end
  if not stored and redis.call('ZCARD', key.due) > 0 then
    uses = USES_ALL -- the record was lost, the messages were not
  end
  control = {
    revision = revision, sequence = sequence, acked = acked, cancelled = cancelled,
    purged = purged, expired = expired, paused = paused, uses = uses,
    finished_since = finished_since, journal_since = journal_since, armed = armed,
    armed_until = armed_until,
  }
end

local function has_used(bit_value)
  return bit.band(control.uses, bit_value) ~= 0
end
