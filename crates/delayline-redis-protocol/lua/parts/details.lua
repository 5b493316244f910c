-- Details: what has happened to a message, as `details` in layout.rs describes it. There are none
-- until it is claimed or dies for the first time.
--
-- Where a message is, only `index` says. Details are written first, so after a torn operation they
-- may be ahead of it. Then the message goes on from where it is; a lease that the details have as
-- closed is given back or buried, as they say. A settlement goes by the details alone: no other
-- lease is the same.

local function readable_details(details)
  return #details >= DETAILS_BYTES and byte(details, DETAILS_LEVEL) <= LAST_LEVEL
    and byte(details, DETAILS_STATE) <= LEASE_CANCELLING and byte(details, DETAILS_REASON) <= UNREADABLE
    and struct.unpack(INSTANT, details, DETAILS_DUE_FROM) <= MAX_TIMESTAMP
    and #details >= DETAILS_BYTES + struct.unpack(U16, details, DETAILS_FIRST_ERROR_LENGTH_FROM)
end

-- `lease` is epoch and claim id as they stand; `fixed` is digest, level and limits.
local function read_details(details)
  local d, n = {}, 0
  d.state, d.settled, d.reason, d.lease, d.sequence, d.fixed, d.due, d.failures, d.crashes, n =
    struct.unpack(DETAILS_FORMAT, details)
  d.first_error = sub(details, DETAILS_BYTES + 1, DETAILS_BYTES + n)
  d.last_error = sub(details, DETAILS_BYTES + n + 1)
  d.level, d.max_failures, d.max_crashes = struct.unpack(LEVEL_AND_LIMITS, d.fixed, FIXED_LEVEL_FROM)
  return d
end

-- The details of a message that was never claimed.
local function fresh_details(sequence, fixed)
  return {
    state = LEASE_CLOSED, settled = 0, reason = 0, lease = NO_LEASE, sequence = sequence, fixed = fixed,
    due = 0, failures = 0, crashes = 0, first_error = '', last_error = '',
  }
end

local function write_details(d)
  return struct.pack(DETAILS_FORMAT, d.state, d.settled, d.reason, d.lease, d.sequence, d.fixed, d.due,
    d.failures, d.crashes, #d.first_error) .. d.first_error .. d.last_error
end

local function note_error(d, text)
  if text ~= '' then
    if d.first_error == '' then
      d.first_error = text
    end
    d.last_error = text
  end
end
