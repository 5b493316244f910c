-- Details, for the scripts that read them.
--
-- details[id], absent until the message is first claimed or dies:
--   phase 1 | settled 1 | epoch 8 | claim id 16 | sequence 8 | digest 8 | level 1
--   | max_failures 2 | max_crashes 2 | due 6 | failures 2 | crashes 2 | reason 1
--   | first error length 2 | first error | last error
-- `settled` tells how the latest lease was settled: 0 not at all, or the outcome's kind.

local DETAILS_BYTES = 60

local function readable_details(details)
  local phase = byte(details)
  return #details >= DETAILS_BYTES and byte(details, 43) <= 3
    and (phase < DEAD_PHASE or phase == DEAD_PHASE
      and byte(details, 58) >= MAX_FAILURES and byte(details, 58) <= UNREADABLE)
    and struct.unpack('>I6', details, 48) <= MAX_TIMESTAMP
    and #details >= DETAILS_BYTES + struct.unpack('>I2', details, 59)
end
