-- For the scripts that change details; after details.lua.

local DETAILS_FORMAT = '>I1I1c24c8c13I6I2I2I1I2'

-- `lease` is epoch and claim id as they stand; `fixed` is digest, level and limits.
local function read_details(details)
  local d, n = {}, 0
  d.phase, d.settled, d.lease, d.sequence, d.fixed, d.due, d.failures, d.crashes, d.reason, n =
    struct.unpack(DETAILS_FORMAT, details)
  d.first_error = sub(details, DETAILS_BYTES + 1, DETAILS_BYTES + n)
  d.last_error = sub(details, DETAILS_BYTES + n + 1)
  d.level, d.max_failures, d.max_crashes = struct.unpack('>I1I2I2', d.fixed, 9)
  return d
end

-- The details of a message that was never claimed.
local function new_details(sequence, fixed)
  return {
    phase = WAITING_PHASE, settled = 0, lease = string.rep('\0', 24), sequence = sequence, fixed = fixed,
    due = 0, failures = 0, crashes = 0, reason = 0, first_error = '', last_error = '',
  }
end

local function write_details(d)
  return struct.pack(DETAILS_FORMAT, d.phase, d.settled, d.lease, d.sequence, d.fixed, d.due,
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
