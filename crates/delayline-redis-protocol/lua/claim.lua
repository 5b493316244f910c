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
--@include places.lua
--@include records.lua
--@include details.lua
--@include remains.lua

local consumer, claim_id, max = ARGV[2], ARGV[3], tonumber(ARGV[4])
local deadline = after(tonumber(ARGV[5]))
local results, delivered, deaths, changed = {ANSWER_RESULTS, now, 0, 0, -1}, 0, {}, false
local new_details, new_places, new_records, removed = {}, {}, {}, {}
local journaled, ring = false, false
-- The due instant of the first message that stays where it is; nil if the queue is paused.
local first_left

--@include journal.lua
--@include claimed_before.lua
--@include reclaim.lua
--@include take.lua
--@include finish.lua
--@include write.lua

-- When the first lease ends; nil if there is none.
local function first_end_of_lease()
  local first = redis.call('ZRANGEBYSCORE', key.index, FIRST_LEASED, LAST_LEASED, 'WITHSCORES', 'LIMIT', '0', '1')[2]
  return first and tonumber(first) - AT_LEASED * BAND
end

-- State::next_claimable: the earliest due instant or end of a lease, of what is there after the writes.
-- Reads lease_end and first_left, which `take` has set; sets next.
--@inline
local function next_claimable()
  if is_repeated and control.paused == 0 then
    local _
    _, _, _, first_left = ready_messages(0)
  end
  if first_left then
    if delivered > 0 and not is_repeated then
      lease_end = math.min(lease_end or NEVER, deadline)
    end
    next = math.min(first_left, lease_end or NEVER)
    if next == NEVER then
      next = nil
      local leaving = #new_places / 2 + #removed
      if control.uses ~= USES_ALL and redis.call('ZCOUNT', key.index, '0', LAST_WAITING) > leaving then
        control.uses, changed, next = USES_ALL, true, now -- which levels are used was not known
      end
    end
  end
end

-- READ
--@reads index, records, details, journal_new, journal_old
read_journal()
local is_repeated = last_claim and sub(last_claim, JOURNAL_CLAIM_ID) == claim_id
local lease_end = first_end_of_lease()

-- DECIDE
local next
if is_repeated then
  claimed_before()
else
  if lease_end and lease_end <= now then
    reclaim()
    lease_end = first_end_of_lease()
  end
  if control.paused == 0 then
    take()
  end
end
next_claimable()
local more = next and next <= now
results[4], results[5] = more and 1 or 0, next or -1
for i = 1, #deaths do
  results[#results + 1] = deaths[i]
end

-- A worker that got less than it asked for sleeps until `next`. One that is full does not: the next
-- message has to ring for another worker then, and what is left over or due soon rings at once.
local sleeps = not more and delivered < max
local armed, armed_until = 0, 0
if sleeps then
  armed, armed_until = next or NEVER, now + SAFETY_POLL
end
local hands_on = more or not sleeps and next and next < now + SAFETY_POLL
ring = hands_on and redis.call('LLEN', key.bell) == 0

-- WRITE
changed = changed or #new_places > 0 or #removed > 0
-- An idle worker that finds nothing new does not write each time.
local fresh = armed == control.armed and math.abs(armed_until - control.armed_until) <= STEADY
if changed or hands_on or not fresh then
  control.armed, control.armed_until = armed, armed_until
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
