-- How every conversion begins: a script that converts a queue from one layout to the next, a page
-- per call.
-- ARGV: the schema version to convert from, and how many entries to convert at most. 0 changes
-- nothing.
-- Results: the schema version, 1 while the conversion has begun and not ended, how many entries it
-- has seen, and how many there are.
--
-- In front of this a conversion declares:
--   total           how many entries it will see, in all hashes
--   control_bytes   how long a control record of its old layout is
-- Behind it, it scans `limit` entries from `cursor` on in the hash of the `phase`, which counts
-- from 1, and writes those that change. It ends with converted.lua.
--
-- The first call only puts a mark in the place of the control record, which no other script can
-- pass. So the hashes stand still, but for keys that expire. A page is written before the mark that
-- says so: a conversion that was torn sees entries again that it has converted, and has to know
-- them.

local unpack = unpack or table.unpack
local byte, sub = string.byte, string.sub

local from, limit = tonumber(ARGV[1]), tonumber(ARGV[2])
local stored = redis.call('GET', key.control) or ''
local version, old_version = byte(stored, CONVERSION_HEAD)
if version == CONVERTING and old_version == from then
  version = from
elseif version ~= from then
  return {ANSWER_RESULTS, 0, 0, version or 0, 0, 0, 0} -- another call has ended the conversion
end

local begun = byte(stored, CONVERSION_MARK) == CONVERTING
local phase, cursor, seen, old = 1, 0, 0, stored
-- Other servers, and the same one after a restart, have the entries in another order: a cursor of
-- theirs would lead past some.
local server = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
if begun and #stored == CONVERSION_HEAD_BYTES then
  old = string.rep('\0', control_bytes) -- a mark made by hand, in the place of a damaged one
elseif begun then
  old = sub(stored, CONVERSION_BYTES + 1)
end
local limited_bytes = control_bytes + LIMITED_CONTROL_BYTES - CONTROL_BYTES
if #old ~= control_bytes and #old ~= limited_bytes or not server or #server ~= RUN_ID_BYTES then
  return {ANSWER_DAMAGED}
end
if #stored >= CONVERSION_BYTES and begun then
  local _, before
  _, _, _, phase, cursor, before, seen = struct.unpack(CONVERSION_FORMAT, stored)
  if before ~= server then
    cursor = 0
  end
end

local function keep_mark()
  redis.call('SET', key.control, struct.pack(CONVERSION_FORMAT, CONVERTING, from, from + 1, phase, cursor, server, seen)
    .. old)
end

local function answer()
  return {ANSWER_RESULTS, 0, 0, version, begun and 1 or 0, math.min(seen, total), total}
end

if limit == 0 then
  return answer()
end
--@ask all
if not begun then
  begun = true
  keep_mark()
  return answer()
end
