-- For claim and relay: how groups take turns, if there are any. In `groups`:
--   has_looked       whether this call has looked ahead
--   due, instants    members with a group that are due and in no lane yet; and since when, while no
--                    lane has a turn
--   taken            members that this call takes; other due members go to their lanes
--   lanes            by name, each lane that this call met: `stored` members in `index` from `at`
--                    on, `new` ones from `next_new` on, how many were `read` and `given`, whether
--                    those are all, and how many slots are `free`; in order, the `holders` of slots
--                    that it gives first, whether it `waits` behind these for others, and whether
--                    its turn `ends` with this call, since this leases messages of it
--   ring             lanes as they stand in `turns`, from `next` on; how many were read, if not all
--   arrived          lanes that join the ring in this call, from `next_arrived` on
--   same             the lane that keeps its turn, since this call takes several of it
--   again            lanes that were served, from `next_again` on
--   turn_of, more    of each message that was found: its lane, and whether that has more then, or
--                    NO_TURN if it has to wait for a slot
--   passed           by the number of the next message: lanes in front of it that have none
--   turns            what becomes of lanes that are passed over
--   over             lanes whose turn has ended, with their new score, or false if they are empty
--   left             how many messages stay in lanes after this call
--   from_normal      how many of the taken messages have no group
--   is_cut           whether a lane that was found keeps its turn, because the call ends before it
--   unsorted         whether more messages are due than this call moves to their lanes
--   ended            how many holds have ended that the stored turns still have
local has_groups, by_turns = control.uses >= USES_GROUPS, false
local groups = has_groups and {due = {}}
-- Members of messages with a group that died, if groups are limited.
local buried = {}

-- The number of a message, from its member; 0 for a member that is too short.
local function number_of(member)
  return #member < MEMBER_ID_FROM - 1 and 0 or (struct.unpack(NUMBER, member, 2))
end

-- State::look_ahead. Reads max; sets groups and by_turns.
--@inline
local function look_ahead()
  look_at_turns()
  local last, ended = format('%d', AT_GROUPED * BAND + now), nil
  if has_holds then
    -- Turns::end_holds
    ended = redis.call('ZREVRANGEBYSCORE', key.turns, '(' .. NO_TURN, format('%d', NO_TURN - now), 'LIMIT', '0', LOOK_AHEAD)
    for _, lane in ipairs(ended) do
      unblock(lane)
    end
  end
  by_turns, groups.has_looked = last_turn ~= false, true
  if not by_turns and most then
    by_turns = #redis.call('ZRANGEBYSCORE', key.index, FIRST_GROUPED, last, 'LIMIT', '0', '1') > 0
  elseif not by_turns then
    local found = redis.call('ZRANGEBYSCORE', key.index, FIRST_GROUPED, last, 'WITHSCORES', 'LIMIT', '0',
      format('%d', max + 1))
    local count, instants = #found / 2, {}
    for i = 1, count do
      groups.due[i], instants[i] = found[2 * i - 1], tonumber(found[2 * i]) - AT_GROUPED * BAND
    end
    groups.instants = instants
    if count > 0 and count <= max then
      for level = 0, NORMAL_LEVEL do
        if bit.band(control.uses, 2 ^ level) ~= 0 then
          count = count + redis.call('ZCOUNT', key.index, format('%d', level * BAND), format('%d', level * BAND + now))
        end
      end
    end
    -- Where a lane waits for a slot, its group gets nothing from a relay either.
    by_turns = #groups.due > 0
      and (count > max or (most_of_group or has_holds) and redis.call('ZCARD', key.turns) > 0)
  end
  if by_turns then
    groups = {
      lanes = {}, ring = {}, next = 1, read = 0, arrived = {}, next_arrived = 1, again = {}, next_again = 1,
      count = 0, turns = {}, over = {}, taken = {}, left = 0, from_normal = 0,
    }
    for _, lane in ipairs(ended or {}) do
      local held = lane_called(lane)
      held.is_out, new_turns[lane] = false, true
      groups.arrived[#groups.arrived + 1] = held
    end
    groups.due = redis.call('ZRANGEBYSCORE', key.index, FIRST_GROUPED, last, 'LIMIT', '0', LOOK_AHEAD)
    for i = #groups.due, 1, -1 do
      local member = groups.due[i]
      if byte(member, MEMBER_SEQUENCE_FROM) ~= OF_GROUP or #member < GROUPED_ID_FROM then
        -- It has no group: the next claim meets it among the normal messages.
        table.remove(groups.due, i)
        push(new_places, due_score(NORMAL_LEVEL, now), member)
        control.uses, changed = bit.bor(control.uses, USES_NORMAL), true
      end
    end
    if bit.band(control.uses, USES_NORMAL) ~= 0 and not redis.call('ZSCORE', key.turns, '')
      and redis.call('ZCOUNT', key.index, format('%d', NORMAL_LEVEL * BAND), format('%d', NORMAL_LEVEL * BAND + now)) > 0 then
      arrive('')
    end
    for _, member in ipairs(groups.due) do
      local name = sub(member, MEMBER_LANE)
      local lane = lane_called(name)
      if (most_of_group or has_holds) and lane.is_out == nil then
        local turn = redis.call('ZSCORE', key.turns, name)
        lane.is_out, lane.is_blocked = turn and tonumber(turn) < 0, turn == NO_TURN
      end
      if not lane.is_out then
        arrive(name)
      elseif lane.is_blocked and in_order and redis.call('ZSCORE', key.slots, member) then
        -- Its group waits for it.
        unblock(name)
        lane.is_out, lane.is_blocked, new_turns[name] = false, false, true
        groups.arrived[#groups.arrived + 1] = lane
      end
      lane.new[#lane.new + 1] = member
    end
    groups.size, groups.ended = redis.call('ZCOUNT', key.turns, '0', '+inf') + #groups.arrived, ended and #ended
    changed = changed or #groups.due > 0 or #groups.arrived > 0
  end
end

-- The lane with this name.
local function lane_called(name)
  local lane = groups.lanes[name]
  if not lane then
    lane = {name = name, stored = {}, at = 1, read = 0, sure = 0, new = {}, next_new = 1, given = 0}
    groups.lanes[name] = lane
  end
  return lane
end

-- Adds a lane that has messages now to the ring.
local function arrive(name)
  if not new_turns[name] then
    join(name)
    groups.arrived[#groups.arrived + 1] = lane_called(name)
  end
end

-- Sorts new members of a lane by their numbers. Most are in order.
local function sort_new(lane)
  local numbers, is_sorted, before = {}, true, 0
  for _, member in ipairs(lane.new) do
    local number = number_of(member)
    numbers[member], is_sorted, before = number, is_sorted and number > before, number
  end
  if not is_sorted then
    table.sort(lane.new, function(one, other)
      return numbers[one] < numbers[other]
    end)
  end
  lane.is_sorted = true
end

-- The first message of a lane that was not taken yet, and whether it is new in the lane; nil if
-- there is none. `page` is how many to read at a time, as text.
local function first_in_lane(lane, page)
  if lane.at > #lane.stored and not lane.is_read then
    local name, offset = lane.name, lane.read == 0 and '0' or format('%d', lane.read)
    if name == '' then
      local from, to = format('%d', NORMAL_LEVEL * BAND), format('%d', NORMAL_LEVEL * BAND + now)
      local found = redis.call('ZRANGEBYSCORE', key.index, from, to, 'WITHSCORES', 'LIMIT', offset, page)
      lane.stored, lane.instants = {}, {}
      for i = 1, #found / 2 do
        lane.stored[i], lane.instants[i] = found[2 * i - 1], tonumber(found[2 * i]) - NORMAL_LEVEL * BAND
      end
    elseif #name == LANE_BYTES then
      local score = lane_score(name)
      lane.stored = redis.call('ZRANGEBYSCORE', key.index, score, score, 'LIMIT', offset, page)
    end
    local count = #lane.stored
    lane.at, lane.read, lane.is_read = 1, lane.read + count, count < tonumber(page)
    lane.sure = lane.new[1] and 0 or count
  end
  local stored, new = lane.stored[lane.at], lane.new[lane.next_new]
  if new and not lane.is_sorted then
    sort_new(lane)
    new = lane.new[lane.next_new]
  end
  if new and (not stored or number_of(new) < number_of(stored)) then
    return new, true
  end
  return stored, false
end

-- State::next_in_order.
local function next_in_order(lane, page)
  if lane.given > 0 and not several then
    return nil
  elseif not lane.holders then
    local score, is_new = format('%d', (struct.unpack(INSTANT, lane.name))), nil
    lane.holders, lane.waits = {}, false
    -- At most as many as one claim takes.
    for _, holder in ipairs(redis.call('ZRANGEBYSCORE', key.slots, score, score)) do
      local place = redis.call('ZSCORE', key.index, holder)
      local is_here = place == lane_score(lane.name)
      if not is_here and not is_new then
        is_new = {}
        for _, member in ipairs(lane.new) do
          is_new[member] = true
        end
      end
      if is_here or is_new[holder] then
        if not lane.waits then
          push(lane.holders, holder)
          lane.holders[holder] = true
        end
      elseif place and math.floor(place / BAND) == AT_LEASED then
        lane.holders, lane.waits = {}, true
        break
      else
        lane.waits = true
        if #lane.holders == 0 then
          break
        end
      end
    end
  end
  local holder = lane.holders[lane.given + 1]
  if holder or lane.waits then
    return holder, false
  end
  local member, is_new = first_in_lane(lane, page)
  while member and lane.holders[member] do
    if is_new then
      lane.next_new = lane.next_new + 1
    else
      lane.at = lane.at + 1
    end
    member, is_new = first_in_lane(lane, page)
  end
  return member, is_new
end

-- State::next_in_lane: like first_in_lane, for a lane whose slots may all be taken.
local function next_in_lane(lane, page)
  if not most or #lane.name ~= LANE_BYTES then
    return first_in_lane(lane, page)
  end
  if in_order then
    local member, is_new = next_in_order(lane, page)
    lane.sure = 0
    return member, is_new
  elseif not lane.free then
    local score = format('%d', (struct.unpack(INSTANT, lane.name)))
    lane.free = most - redis.call('ZCOUNT', key.slots, score, score)
  end
  if lane.given >= lane.free then
    return nil
  end
  local member, is_new = first_in_lane(lane, page)
  lane.sure = math.min(lane.sure, lane.at + lane.free - lane.given - 1)
  return member, is_new
end

-- What becomes of a lane that gives no more: NO_TURN if it waits for a slot, false if it is empty.
local function wait_for_slot(lane)
  if most and #lane.name == LANE_BYTES then
    local score = lane_score(lane.name)
    return redis.call('ZCOUNT', key.index, score, score) + #lane.new > lane.given and NO_TURN
  end
  return false
end

-- The next lane of the ring; nil if there is none.
local function next_lane(page)
  local same = groups.same
  if same then
    groups.same = nil
    return same
  elseif groups.next > #groups.ring and not groups.is_read then
    groups.ring = redis.call('ZRANGEBYSCORE', key.turns, '0', '+inf', 'LIMIT', groups.read, page)
    groups.next, groups.read, groups.is_read = 1, groups.read + #groups.ring, #groups.ring < page
  end
  local name = groups.ring[groups.next]
  if name then
    groups.next = groups.next + 1
    local lane = lane_called(name)
    lane.is_in_ring = true
    return lane
  end
  while groups.arrived[groups.next_arrived] do
    local lane = groups.arrived[groups.next_arrived]
    groups.next_arrived = groups.next_arrived + 1
    if not lane.is_in_ring then
      return lane
    end
  end
  local lane = groups.again[groups.next_again]
  groups.next_again = groups.next_again + (lane and 1 or 0)
  return lane
end

-- For ready_messages: adds the messages of the level of groups to ids, members and due, and to
-- count, up to wanted. Reads before_level, behind which the normal messages stand.
--@inline
local function add_groups()
  if by_turns then
    add_turns()
  elseif groups.instants and #groups.due > 0 and wanted > 0 then
    add_all()
  end
end

--@inline
local function add_turns()
  --@functions
  local turn_of, more, passed, again = {}, {}, {}, groups.again
  groups.turn_of, groups.more, groups.passed = turn_of, more, passed
  -- As many as a lane gives if all have many, and one more: whether it continues.
  local sharing = together and 1 or math.max(1, groups.size)
  local empty, page = nil, format('%d', math.ceil((wanted - count) / sharing) + 1)
  while count < wanted do
    if groups.count == LOOK_AHEAD then
      wanted = count -- the call ends here
      break
    end
    local lane = next_lane(wanted - count + groups.count)
    if not lane then
      break
    end
    local at, member, is_new = lane.at, nil, false
    if at <= lane.sure then
      member = lane.stored[at]
    else
      member, is_new = next_in_lane(lane, page)
      at = lane.at
    end
    if member then
      count, lane.given = count + 1, lane.given + 1
      passed[count], empty = empty, nil
      turn_of[count], members[count] = lane, member
      ids[count] = id_of(member)
      if is_new then
        lane.next_new = lane.next_new + 1
      elseif not (lane.holders and lane.holders[member]) then
        due[count] = lane.instants and lane.instants[at]
        at = at + 1
        lane.at = at
      end
      if at <= lane.sure or next_in_lane(lane, page) then
        more[count] = true
        if together and lane.name ~= '' then
          groups.same = lane
        else
          again[#again + 1] = lane
        end
      else
        more[count] = wait_for_slot(lane)
      end
    else
      empty = empty or {}
      groups.turns[lane.name] = wait_for_slot(lane)
      empty[#empty + 1], groups.count = lane.name, groups.count + 1
    end
  end
  passed[count + 1] = empty
end

-- All due messages fit: adds them in the order of their due instants.
--@inline
local function add_all()
  local normal, at = {}, 1
  for i = before_level + 1, count do
    normal[i - before_level] = {members[i], ids[i], due[i]}
  end
  count = before_level
  for i, member in ipairs(groups.due) do
    local its_due = groups.instants[i]
    local other = normal[at]
    while other and (other[3] < its_due or other[3] == its_due and number_of(other[1]) < number_of(member)) do
      count = count + 1
      members[count], ids[count], due[count] = other[1], other[2], other[3]
      at = at + 1
      other = normal[at]
    end
    count = count + 1
    members[count], ids[count], due[count] = member, id_of(member), its_due
  end
  for i = at, #normal do
    count = count + 1
    members[count], ids[count], due[count] = normal[i][1], normal[i][2], normal[i][3]
  end
  groups.count, groups.due = #groups.due, {}
end

-- For take_ready: sets the due instants of messages from lanes.
--@inline
local function look_when_due()
  local read = struct.unpack
  for i, id in ipairs(ids) do
    if not due[i] then
      local record, entry = records[i] or '', stored[i]
      -- Shortcuts due_in_lane.
      local its_due = not entry and #record >= RECORD_BYTES + GROUP_BYTES and read(INSTANT, record, RECORD_DUE_FROM)
      due[i] = its_due and its_due < MAX_TIMESTAMP and its_due or due_in_lane(id, record, entry)
    end
  end
end

-- State::end_turn, for lanes without a message in front of the one at this position.
--@inline
local function pass_over()
  local passed = groups.passed[position]
  if passed then
    for _, name in ipairs(passed) do
      groups.over[name], changed = groups.turns[name], true
    end
  end
end

-- Notes whether a group was found that keeps its turn, because the call ends before it.
--@inline
local function look_at_rest()
  for left = left_from or #ids + 1, #ids + 1 do
    for _, name in ipairs(groups.passed[left] or {}) do
      groups.is_cut = groups.is_cut or name ~= ''
    end
    local lane = groups.turn_of[left]
    groups.is_cut = groups.is_cut or lane and lane.name ~= '' and not lane.ends
  end
end

-- State::end_turn, for a message that is taken or buried: the turn goes to the next lane.
--@inline
local function serve()
  local position = i
  pass_over()
  local lane = groups.turn_of[i]
  if lane then
    last_turn = last_turn + 1
    groups.over[lane.name] = groups.more[i] == true and last_turn or groups.more[i]
    if lane.name == '' then
      groups.from_normal = groups.from_normal + 1
    else
      groups.left = groups.left - 1
      if lane.new[1] then
        groups.taken[member] = true
      end
    end
  end
end

-- Moves lanes: a lane that was served goes to the end of the ring, and an empty one leaves it. New
-- messages go to their lanes.
--@inline
local function keep_turns()
  -- If all lanes of the ring were served equally often, they stand in the right order.
  local ring = groups.ring
  local stays = is_exact and groups.is_read and groups.read == #ring and not groups.arrived[1] and not served[1]
  for i = 1, stays and #ring or 0 do
    stays = stays and groups.over[ring[i]] == last_turn - #ring + i
  end
  for name, turn in pairs(groups.over) do
    if turn == NO_TURN or turn and groups.lanes[name].ends then
      push(stalled, NO_TURN, name)
    elseif not turn then
      old_turns[#old_turns + 1] = name
    elseif not stays then
      local n = #served
      served[n + 1], served[n + 2] = format('%d', turn), name
    end
  end
  groups.left = groups.left + #groups.due
  for _, member in ipairs(groups.due) do
    if not groups.taken[member] then
      push(new_places, lane_score(sub(member, MEMBER_LANE)), member)
    end
  end
end

-- Frees the slots of messages that died in this call.
--@inline
local function free_buried()
  for _, member in ipairs(buried) do
    local lane = sub(member, MEMBER_LANE)
    if redis.call('ZSCORE', key.slots, member) then
      old_slots[#old_slots + 1] = member
    end
    local its = groups.lanes[lane]
    if groups.over[lane] == NO_TURN and not (its.waits and not its.holders[its.given + 1]) then
      last_turn = last_turn + 1
      groups.over[lane], groups.again[#groups.again + 1] = last_turn, its
    end
  end
end

-- Lowers first_left if a message that stays in a lane, or that has a group, is due sooner.
--@inline
local function look_at_lanes()
  if by_turns then
    groups.left = groups.left + redis.call('ZCOUNT', key.index, FIRST_IN_LANES, LAST_IN_LANES)
    local normal = redis.call('ZRANGEBYSCORE', key.index, format('%d', NORMAL_LEVEL * BAND),
      format('%d', NORMAL_LEVEL * BAND + MAX_TIMESTAMP), 'WITHSCORES', 'LIMIT', groups.from_normal, '1')[2]
    first_left = math.min(first_left, normal and tonumber(normal) - NORMAL_LEVEL * BAND or NEVER)
  end
  local first = redis.call('ZRANGEBYSCORE', key.index, FIRST_GROUPED, LAST_GROUPED, 'WITHSCORES', 'LIMIT',
    by_turns and #groups.due or groups.count or '0', '1')[2]
  local first_due = first and tonumber(first) - AT_GROUPED * BAND or NEVER
  first_left = math.min(first_left, first_due)
  groups.unsorted = by_turns and first_due <= now
  local waits
  if by_turns then
    local lane = next_lane(1)
    while lane and (lane.name == '' or lane.ends) do
      lane = next_lane(1)
    end
    waits = groups.left > 0 and (lane or groups.is_cut)
  elseif groups.has_looked then
    waits = delivered < max and find_lost_turns()
  else
    waits = has_turn()
  end
  if waits then
    first_left = 0
  elseif has_holds
    and (by_turns and groups.left or redis.call('ZCOUNT', key.index, FIRST_IN_LANES, LAST_IN_LANES)) > 0 then
    first_left = math.min(first_left, first_hold(groups.ended or 0) or NEVER)
  end
end

-- Whether there are messages in lanes, but no lane has a turn. Then up to LOOK_AHEAD lanes join the
-- ring.
local function find_lost_turns()
  local from = FIRST_IN_LANES
  if redis.call('ZCARD', key.turns) > 0 then
    -- Lanes that waited for a slot under limits that are lost wait no longer.
    local waiting = most_of_group and {}
      or redis.call('ZRANGEBYSCORE', key.turns, has_holds and NO_TURN or '-inf', '(0', 'LIMIT', '0', LOOK_AHEAD)
    for _, lane in ipairs(waiting) do
      unblock(lane)
    end
    return #waiting > 0
  end
  for _ = 1, LOOK_AHEAD do
    local first = redis.call('ZRANGEBYSCORE', key.index, from, LAST_IN_LANES, 'WITHSCORES', 'LIMIT', '0', '1')[2]
    if not first then
      break
    end
    join(struct.pack(INSTANT, tonumber(first) - AT_LANES * BAND))
    from = '(' .. first
  end
  return #new_turns > 0
end
