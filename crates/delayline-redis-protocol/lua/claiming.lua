-- For the scripts that claim. Read consumer, claim_id, max and deadline; results, and before_claim, which is how many
-- results stand before those of the claim.

local delivered, deaths, changed = 0, {}, false
local journaled, ring = false, false
-- The due instant of the first message that stays where it is; nil if the queue is paused.
local first_left

--@include journal.lua
--@include claimed_before.lua
--@include reclaim.lua
--@include take.lua

-- State::claim. Reads is_repeated, whether this is the consumer's last claim again, and lease_end, when the first
-- lease ends (in a turn only if it has ended); sets results, next, changed, hands_on, is_news and what is to be
-- written.
--@inline
local function claim_all()
  if is_repeated then
    claimed_before()
    if control.paused == 0 then
      local _
      _, _, _, first_left = ready_messages(0)
    end
  else
    if lease_end and lease_end <= now then
      reclaim()
      lease_end = first_end_of_lease('0')
    end
    if control.paused == 0 then
      take()
      --@with ended
      if first_left > now then
        pass_over_ended()
      end
      if delivered > 0 then
        lease_end = math.min(lease_end or NEVER, deadline)
      end
    end
  end
  local leaving = #new_places / 2 + #removed
  next_claimable()
  local more = next and next <= now
  results[before_claim + 1], results[before_claim + 2] = more and 1 or 0, next or -1
  for i = 1, #deaths do
    results[#results + 1] = deaths[i]
  end
  local sleeps = not more and delivered < max
  tell_sleepers()
  changed = changed or #new_places > 0 or #removed > 0
end
