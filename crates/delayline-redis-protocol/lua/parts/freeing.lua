-- For the scripts that end messages or their leases.

--@include slots.lua

-- Members that leave `slots`.
local old_slots = {}
-- In a queue in order: by lane, the members that hold slots, which of them still do, and the first
-- of these, `at`; and the members that leave their lanes in this call and keep their slots.
local holders, leaving_lane = {}, {}

-- State::free_slot, where groups are limited, and State::look_at_slot of a message that keeps its
-- slot, both with State::look_at_lane.
local function free_slot(member, is_kept)
  local lane, number, held, first = sub(member, MEMBER_LANE), nil, nil, nil
  if byte(member, MEMBER_SEQUENCE_FROM) ~= OF_GROUP then
    return
  elseif in_order and #lane == LANE_BYTES then
    number, held = struct.unpack(INSTANT, lane), holders[lane]
    if not held then
      -- At most as many as one claim takes.
      local score = format('%d', number)
      held = redis.call('ZRANGEBYSCORE', key.slots, score, score)
      held.at, held.by_member, holders[lane] = 1, {}, held
      for _, holder in ipairs(held) do
        held.by_member[holder] = true
      end
    end
    if not held.by_member[member] then
      return
    end
    held.by_member[member] = is_kept or false
    while held[held.at] and not held.by_member[held[held.at]] do
      held.at = held.at + 1
    end
    first = held[held.at]
  elseif not redis.call('ZSCORE', key.slots, member) then
    return
  end
  if not is_kept then
    old_slots[#old_slots + 1] = member
  end
  if redis.call('ZSCORE', key.turns, lane) == NO_TURN and not new_turns[lane]
    and (not first or not leaving_lane[first]
      and redis.call('ZSCORE', key.index, first) == format('%d', AT_LANES * BAND + number)) then
    new_turns[lane] = true
    unblock(lane)
  end
end
