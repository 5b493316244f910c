-- For the scripts that end messages or their leases.

--@include slots.lua

-- Members that leave `slots`.
local old_slots = {}

-- State::free_slot, where groups are limited.
local function free_slot(member)
  if byte(member, MEMBER_SEQUENCE_FROM) == OF_GROUP and redis.call('ZSCORE', key.slots, member) then
    old_slots[#old_slots + 1] = member
    local lane = sub(member, MEMBER_LANE)
    if redis.call('ZSCORE', key.turns, lane) == NO_TURN and not new_turns[lane] then
      new_turns[lane] = true
      unblock(lane)
    end
  end
end
