-- For the scripts that do what `totals` counts. DECIDE notes what happens; write.lua adds all of it
-- to the key in one command. Enqueued, acked, cancelled, purged and expired messages are counted in
-- the control record.

-- How often to add one, by the number of the counter; false if nothing is to be counted.
local counted = false

local function tally(counter, times)
  counted = counted or {}
  counted[counter] = (counted[counter] or 0) + times
end

-- For take: Totals::count_delivery, for `alike` messages that were due at `alike_due`.
--@inline
local function tally_deliveries()
  local late, bucket = now - alike_due, 0
  while late >= 2 and bucket < LAST_LATENESS do
    late, bucket = late / 2, bucket + 1
  end
  tally(TOTAL_LATENESS + bucket, alike)
end

-- State::bury: counts a death. Answers the score of a message that dies now, as text.
local function bury(reason)
  if reason == EXPIRED then
    control.expired = control.expired + 1
  else
    local died = {
      [MAX_FAILURES] = TOTAL_DIED_MAX_FAILURES, [MAX_CRASHES] = TOTAL_DIED_MAX_CRASHES,
      [REJECTED] = TOTAL_DIED_REJECTED, [UNDECODABLE] = TOTAL_DIED_UNDECODABLE,
      [UNREADABLE] = TOTAL_DIED_UNREADABLE,
    }
    tally(died[reason], 1)
  end
  return dead_score()
end

-- For write: the first command that changes something, except in a relay. So neither its permission
-- nor the type of its key needs a check: nothing has been done yet if it fails. A file that is torn
-- after it has counted changes that were not made.
--@inline
local function add_to_totals()
  local increments = {}
  for counter, times in pairs(counted) do
    local n = #increments
    increments[n + 1], increments[n + 2] = 'INCRBY', 'i64'
    increments[n + 3], increments[n + 4] = format('#%d', counter), format('%d', times)
  end
  redis.call('BITFIELD', key.totals, unpack(increments))
  counted = false
end
