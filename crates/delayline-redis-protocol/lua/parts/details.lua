-- Details: what has happened to a message, as `details` in layout.rs describes it. There are none
-- until it is claimed or dies for the first time.
--
-- Only `index` says where a message is. Details are written first, so after a torn operation they
-- may be ahead of it. Then the message continues from its place in `index`; a lease that is closed
-- in the details is given back or buried, as they say. A settlement compares its lease with the
-- details alone, because each lease is unique.

-- The number of bytes in front of the errors.
local function head_of_details(details)
  return byte(details, DETAILS_LEVEL) == AT_GROUPED and DETAILS_BYTES + LANE_BYTES or DETAILS_BYTES
end

-- Whether readable details belong to the message with this record.
local function are_of(details, record, limits)
  return sub(details, DETAILS_SEQUENCE) == sub(record, RECORD_SEQUENCE)
    and sub(details, DETAILS_FIXED) == fixed_of(record, limits)
    and sub(details, DETAILS_BYTES + 1, head_of_details(details)) == lane_of(record)
end

-- The member in `index` of the message that the details belong to.
local function member_by(details, id)
  if byte(details, DETAILS_LEVEL) == AT_GROUPED then
    return sub(details, DETAILS_SEQUENCE) .. sub(details, DETAILS_LANE) .. id
  end
  return sub(details, DETAILS_SEQUENCE) .. id
end

local function readable_details(details)
  return #details >= DETAILS_BYTES
    and (byte(details, DETAILS_LEVEL) <= LAST_LEVEL or byte(details, DETAILS_LEVEL) == AT_GROUPED)
    and (byte(details, DETAILS_LEVEL) == AT_GROUPED) == (byte(details, DETAILS_SEQUENCE_FROM) == OF_GROUP)
    and byte(details, DETAILS_STATE) <= LEASE_CANCELLING and byte(details, DETAILS_REASON) <= UNREADABLE
    and struct.unpack(INSTANT, details, DETAILS_DUE_FROM) <= MAX_TIMESTAMP
    and #details >= head_of_details(details) + struct.unpack(U16, details, DETAILS_FIRST_ERROR_LENGTH_FROM)
end

-- `lease` is epoch and claim id as they are stored; `fixed` is digest, level and limits; `saved` is
-- '' if nothing was saved, or if its end is missing. The attempts are the bytes from
-- `attempts_from` to `attempts_to` of `details`, then `latest`. They are not copied here: they may
-- be long, and copies of long texts are the greatest cost of a script.
local function read_details(details)
  local state, settled, reason, lease, sequence, fixed, due, failures, crashes, first, last, attempts,
    saved_bytes =
    struct.unpack(DETAILS_FORMAT, details)
  local level, max_failures, max_crashes = struct.unpack(LEVEL_AND_LIMITS, fixed, FIXED_LEVEL_FROM)
  local head = head_of_details(details)
  first = head + first
  last = first + last
  local saved = last + saved_bytes <= #details and sub(details, last + 1, last + saved_bytes) or ''
  return {
    state = state, settled = settled, reason = reason, lease = lease, sequence = sequence, fixed = fixed,
    due = due, failures = failures, crashes = crashes, level = level, max_failures = max_failures,
    max_crashes = max_crashes, lane = sub(details, DETAILS_BYTES + 1, head), first_error = sub(details, head + 1, first),
    last_error = sub(details, first + 1, last), attempts = attempts, saved = saved, details = details,
    attempts_from = last + saved_bytes + 1, attempts_to = #details, latest = '',
  }
end

-- The details of a message that was never claimed.
local function fresh_details(sequence, fixed, lane)
  return {
    state = LEASE_CLOSED, settled = 0, reason = 0, lease = NO_LEASE, sequence = sequence, fixed = fixed,
    due = 0, failures = 0, crashes = 0, lane = lane, first_error = '', last_error = '', attempts = 0, saved = '', details = '',
    attempts_from = 1, attempts_to = 0, latest = '',
  }
end

local function write_details(d)
  return struct.pack(DETAILS_FORMAT, d.state, d.settled, d.reason, d.lease, d.sequence, d.fixed, d.due,
    d.failures, d.crashes, #d.first_error, #d.last_error, d.attempts, #d.saved) .. d.lane .. d.first_error .. d.last_error
    .. d.saved
    .. sub(d.details, d.attempts_from, d.attempts_to) .. d.latest
end

-- Entry::note_attempt, for an outcome of this kind, or 0 if the lease has expired. The error of the
-- latest attempt with an error is in `last_error`; the attempt gets its own text when another error
-- follows. All attempts behind it have no error, so they are as long as their fixed part.
local function note_attempt(d, kind, text)
  if d.attempts < MAX_ATTEMPTS then
    d.attempts = d.attempts + 1
  else
    local length = byte(d.details, d.attempts_from + ATTEMPT_BYTES - 1) or 0
    d.attempts_from = d.attempts_from + ATTEMPT_BYTES + (length < SAME_ERROR and length or 0)
  end
  if text ~= '' and text ~= d.last_error then
    local at, error = d.attempts_to, d.last_error
    while at >= d.attempts_from and byte(d.details, at) == 0 do
      at = at - ATTEMPT_BYTES
    end
    if at >= d.attempts_from and byte(d.details, at) == SAME_ERROR then
      local last = #error
      if last > MAX_ATTEMPT_ERROR_BYTES then
        last = MAX_ATTEMPT_ERROR_BYTES
        while last > 0 and bit.band(byte(error, last + 1), 192) == 128 do -- within a character
          last = last - 1
        end
      end
      d.attempts_to = at - 1
      d.latest = string.char(last) .. sub(error, 1, last) .. sub(d.details, at + 1)
    end
    d.last_error = text
    if d.first_error == '' then
      d.first_error = text
    end
  end
  d.latest = d.latest .. struct.pack(ATTEMPT_FORMAT, now, kind, text == '' and 0 or SAME_ERROR)
end
