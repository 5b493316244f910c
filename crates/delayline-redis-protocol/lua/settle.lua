-- State::settle. ARGV: now, the ids, then for each a `settlement` (layout.rs).
-- Results: the status of a message whose lease has ended; SETTLE_STALE, SETTLE_MISSING; SETTLE_ALREADY_DONE
-- if the message was given back; SETTLE_ALREADY_ENDED minus the status if that was the message's end.

--@include prelude.lua
--@include lists.lua
--@include bell.lua
--@include scheduling.lua
--@include totals.lua
--@include details.lua
--@include finished.lua

local results, first_due, ring = {ANSWER_RESULTS, now, 0}, NEVER, false
local new_finished, new_details, new_places, ended, gone = {}, {}, {}, {}, {}
local new_records, new_updates, removed, replaced_contents = {}, {}, {}, {}

--@include finish.lua
--@include take_over.lua
--@include settling.lua
--@include write.lua

-- READ
--@reads details
local count = (#ARGV - 1) / 2
local stored = redis.call('HMGET', key.details, unpack(ARGV, 2, 1 + count))
local known = bit.band(control.uses, USES_UPDATES) ~= 0
  and redis.call('HMGET', key.updates, unpack(ARGV, 2, 1 + count))

-- DECIDE. Shortcuts finish: most settlements end their message.
local others, gone_count = {}, 0
for i = 1, count do
  local id, item, entry = ARGV[1 + i], ARGV[1 + count + i], stored[i]
  local is_ack = #item == LEASE_BYTES
  local lease = is_ack and item or sub(item, SETTLEMENT_LEASE)
  -- What else stands in the details of a message that goes does not matter.
  local state = entry and #entry >= DETAILS_BYTES and sub(entry, DETAILS_LEASE) == lease
    and byte(entry, DETAILS_STATE)
  if (state == LEASE_CANCELLING or is_ack and state == LEASE_OPEN) and not (known and known[i]) then
    local status = CANCELLED_BYTE
    if is_ack then
      status, results[3 + i], control.acked = ACKED_BYTE, ACKED, control.acked + 1
    else
      results[3 + i], control.cancelled = CANCELLED, control.cancelled + 1
    end
    gone_count = gone_count + 1
    gone[gone_count], ended[gone_count] = id, sub(entry, DETAILS_SEQUENCE) .. id
    new_finished[2 * gone_count - 1] = id
    new_finished[2 * gone_count] = status .. sub(entry, DETAILS_DIGEST) .. lease
  else
    others[#others + 1] = i
  end
end
if #others > 0 then
  settle_others()
  ring = first_due < NEVER and rings(first_due)
end

-- WRITE
if #gone > 0 or #new_places > 0 then
  look_at_minute()
  --@first BITFIELD totals
  ask()
  begin_writes()
  write()
  commit()
end
results[3] = control.revision
return results
