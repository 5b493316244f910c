-- State::claim. ARGV: now, consumer, claim id, max, lease in ms.
-- Results: more (0 or 1), next instant or -1, then for each delivery its id, its record, and its due
-- instant, if this call leases it for the first time, else the deadline in 6 bytes and its details;
-- then for each message that this call buried the reason, a number, and its id.
--
-- `reclaim` and `take` read what they decide about, and `reclaim` writes too: what it takes back may be
-- leased at once, so it is written before `take` looks for ready messages.

--@include prelude.lua
--@include lists.lua
--@include scheduling.lua
--@include totals.lua
--@include places.lua
--@include records.lua
--@include details.lua
--@include remains.lua
--@include ready.lua
--@include next_claimable.lua
--@include sleepers.lua

local consumer, claim_id, max = ARGV[2], ARGV[3], tonumber(ARGV[4])
local deadline = after(tonumber(ARGV[5]))
local results, before_claim = {ANSWER_RESULTS, now, 0, 0, -1}, 3
local new_details, new_places, new_records, removed = {}, {}, {}, {}

--@include claiming.lua
--@include finish.lua
--@include take_over.lua
--@include write.lua

-- READ
--@reads index, records, details, journal_new, journal_old
read_journal()
local is_repeated = last_claim and sub(last_claim, JOURNAL_CLAIM_ID) == claim_id
local lease_end = first_end_of_lease('0')

-- DECIDE
local next, hands_on, is_news
claim_all()

-- WRITE
if changed or hands_on or is_news then
  if changed then
    look_at_minute()
  end
  --@first BITFIELD totals
  ask()
  begin_writes()
  write()
  if changed then
    commit()
  else
    keep_control()
  end
end
results[3] = control.revision
return results
