-- The slots of groups: how many messages of a group are handled at once, and in which order. The
-- members of `slots` are those of messages in `index`, and their scores are the numbers of lanes. A
-- lane that waits for a slot has the score NO_TURN in `turns`.
--
-- Limiter::slots_of_group, nil if nothing limits them.
local most_of_group = in_order and 1
  or control.limits ~= '' and struct.unpack(U32, control.limits, QUEUE_LIMITS_EACH_GROUP_FROM) or nil
if most_of_group == 0 then
  most_of_group = nil
end
-- Lanes that go to the end of the ring: score, member.
local served = {}
-- How many lanes have a turn again.
local unblocked = 0

-- Gives a lane that waits for a slot a turn again.
local function unblock(lane)
  look_at_turns()
  last_turn, unblocked = (last_turn or 0) + 1, unblocked + 1
  push(served, format('%d', last_turn), lane)
end
