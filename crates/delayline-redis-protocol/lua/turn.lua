-- State::turn. ARGV: now, the ids of the settlements, the settlements as `settle` takes them, then consumer, claim
-- id, max and lease in ms as `claim` takes them.
-- Results: for each settlement as `settle`, then as `claim`.
--
-- Most settlements end their message, and then all is written together at the end. What else they change is written
-- before the claim.

--@include prelude.lua
--@include lists.lua
--@include scheduling.lua
--@include totals.lua
--@include places.lua
--@include records.lua
--@include details.lua
--@include finished.lua
--@include remains.lua
--@include ready.lua
--@include next_claimable.lua
--@include sleepers.lua

local count = (#ARGV - 5) / 2
local consumer, claim_id, max = ARGV[2 + 2 * count], ARGV[3 + 2 * count], tonumber(ARGV[4 + 2 * count])
local deadline = after(tonumber(ARGV[5 + 2 * count]))
local results, before_claim, first_due = {ANSWER_RESULTS, now, 0}, 3 + count, NEVER
local new_finished, new_details, new_places, ended, gone = {}, {}, {}, {}, {}
local new_records, new_updates, removed, replaced_contents = {}, {}, {}, {}

--@include claiming.lua
--@include finish.lua
--@include take_over.lua
--@include settling.lua
--@include write.lua
--@include write_settlements.lua

-- When the first lease ends, but for those that this call ends. Sets lease_end.
--@inline
local function pass_over_ended()
  local is_ended = {}
  for _, member in ipairs(ended) do
    is_ended[member] = true
  end
  local members = redis.call('ZRANGEBYSCORE', key.index, FIRST_LEASED, LAST_LEASED,
    'LIMIT', '0', format('%d', #ended + 1))
  for _, member in ipairs(members) do
    if not is_ended[member] then
      lease_end = redis.call('ZSCORE', key.index, member) - AT_LEASED * BAND
      break
    end
  end
end

-- READ
--@reads index, records, details, journal_new, journal_old
local stored, known
read_leases()
read_journal()
local is_repeated = last_claim and sub(last_claim, JOURNAL_CLAIM_ID) == claim_id
-- Only whether a lease has run out: when the first one ends matters if nothing else is ready.
local lease_end = redis.call('ZRANGEBYSCORE', key.index, FIRST_LEASED, format('%d', AT_LEASED * BAND + now),
  'LIMIT', '0', '1')[1] and now

-- DECIDE
settle_all()
results[before_claim + 1], results[before_claim + 2] = 0, -1
if #new_places > 0 or #gone > 0 and (is_repeated or lease_end or #gone > MAX_ENDED_WITH_CLAIM) then
  write_settlements()
  lease_end = first_end_of_lease('0')
elseif is_repeated then
  lease_end = first_end_of_lease('0')
end
local next, hands_on, is_news
claim_all()

-- WRITE
changed = changed or #gone > 0
if changed or hands_on or is_news then
  if changed then
    look_at_minute()
  end
  --@first BITFIELD totals
  ask()
  begin_writes()
  if #gone > 0 then
    if counted then
      add_to_totals()
    end
    -- Before the claim's: a torn turn is a torn settlement, or one that a torn claim follows.
    remember_finished()
    remove_gone()
    new_finished, ended, gone = {}, {}, {}
  end
  write()
  if changed then
    commit()
  else
    keep_control()
  end
end
results[3] = control.revision
return results
