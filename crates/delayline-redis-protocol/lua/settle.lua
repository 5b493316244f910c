-- State::settle. ARGV: now, the ids, then for each a `settlement`, and the holds of the queue, if
-- any, each a `hold` (layout.rs).
-- Results: the status of a message whose lease has ended; SETTLE_STALE, SETTLE_MISSING;
-- SETTLE_ALREADY_DONE if the message was given back; SETTLE_ALREADY_ENDED minus the status if that
-- was the message's end.

--@include prelude.lua
--@include lists.lua
--@include bell.lua
--@include scheduling.lua
--@include totals.lua
--@include details.lua
--@include turns.lua
--@include freeing.lua
--@include finished.lua

local results, first_due, ring = {ANSWER_RESULTS, now, 0}, NEVER, false
local new_finished, new_details, new_places, ended, gone = {}, {}, {}, {}, {}
local new_records, new_updates, removed, replaced_contents = {}, {}, {}, {}

--@include finish.lua
--@include take_over.lua
--@include saving.lua
--@include settling.lua
--@include write.lua

-- READ
--@reads details
local count, stored, known = math.floor((#ARGV - 1) / 2), nil, nil
local holds, freed = #ARGV % 2 == 0 and ARGV[#ARGV] or '', 0
local claims_next = false
read_leases()

-- DECIDE
settle_all()
look_at_limits()
ring = first_due < NEVER and not (claims_next and first_due <= now) and rings(first_due, freed)

-- WRITE
if #gone > 0 or #new_places > 0 then
  look_at_minute()
  --@first BITFIELD totals
  ask()
  begin_writes()
  if control.uses ~= control.known_uses then
    redis.call('BITFIELD', key.totals)
    keep_uses()
  end
  write()
  commit()
end
results[3] = control.revision
return results
