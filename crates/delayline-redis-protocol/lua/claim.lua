-- State::claim. ARGV: now, consumer, claim id, max, lease in ms, and 1 if it asks for several of a
-- group in a queue in order.
-- Results: the microseconds of the clock past `now`, 1 if there are more, plus 2 if as many are
-- leased as may be, plus 4 if more are due than go to their lanes, next instant or -1; then for
-- each delivery its id, its record, and its due instant, if this call leases it for the first time,
-- else the deadline in 6 bytes and its details; then for each message that this call buried the
-- reason, a number, and its id.
--
-- `reclaim` and `take` read what they decide about, and `reclaim` writes too: what it takes back
-- may be leased at once, so it is written before `take` looks for ready messages.

--@include prelude.lua
--@include lists.lua
--@include scheduling.lua
--@include totals.lua
--@include places.lua
--@include records.lua
--@include details.lua
--@include lanes.lua
--@include turns.lua
--@include freeing.lua
--@include finished.lua
--@include remains.lua

-- The most that hold slots of a group; nil for any number. In order, whether one call takes
-- several, and whether it takes all of one group before the next.
local most, several = most_of_group, in_order and ARGV[6] == '1'
local together = several

--@include ready.lua
--@include next_claimable.lua
--@include admitting.lua

local consumer, claim_id, max = ARGV[2], ARGV[3], tonumber(ARGV[4])
local deadline = after(tonumber(ARGV[5]))
local results = {ANSWER_RESULTS, now, 0, micros, 0, -1}
local new_details, new_places, new_records, removed = {}, {}, {}, {}
local old_turns, new_slots, stalled = {}, {}, {}
local delivered, deaths, changed = 0, {}, false
local journaled, ring = false, false
-- The due instant of the first message that stays where it is; nil if the queue is paused.
local first_left
local asked, limiter, leased, ahead, passed = max, nil, 0, 0, 0

--@include journal.lua
--@include claimed_before.lua
--@include reclaim.lua
--@include take.lua
--@include finish.lua
--@include take_over.lua
--@include write.lua

-- READ
--@reads index, records, details
read_journal()
local is_repeated = last_claim and sub(last_claim, JOURNAL_CLAIM_ID) == claim_id
local lease_end = first_end_of_lease('0')

-- DECIDE
if is_repeated then
  claimed_before()
  if control.paused == 0 then
    read_limits()
    if limiter then
      count_leased()
    end
    local _
    _, _, _, first_left = ready_messages(0)
    if has_groups then
      look_at_lanes()
    end
  end
else
  if lease_end and lease_end <= now then
    reclaim()
    lease_end = first_end_of_lease('0')
  end
  if control.paused == 0 then
    read_limits()
    if limiter then
      count_leased()
      admit()
    end
    take()
    if limiter then
      spend()
      leased = leased + delivered
    end
    if delivered > 0 then
      lease_end = math.min(lease_end or NEVER, deadline)
    end
  end
end
local leaving = #new_places / 2 + #removed
local next, hands_on, is_news
next_claimable()
local more = next and next <= now
local capped = limiter and limiter.leased > 0 and leased >= limiter.leased
results[5] = (more and 1 or 0) + (capped and 2 or 0) + (groups and groups.unsorted and 4 or 0)
results[6] = next or -1
for i = 1, #deaths do
  results[#results + 1] = deaths[i]
end
local sleeps = not more and delivered < asked
tell_sleepers()
changed = changed or #new_places > 0 or #removed > 0

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
