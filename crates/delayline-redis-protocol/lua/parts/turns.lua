-- Whose turn it is: Turns in delayline-core. The members of `turns` are the numbers of lanes, as
-- they stand in members of `index`, or '' for messages without a group. Of scores from 0 on, the
-- lowest is next; others are those of lanes that wait for a slot, or that are held.
--
-- Lanes that join the ring unless they are in it: score, member; and each of them is a key.
local new_turns = {}
-- The score of the last lane, or false if the ring is empty; nil as long as it is unknown.
local last_turn
-- Whether the scores are exact numbers; others are damage.
local is_exact
-- Whether a lane is in the ring, waits for a slot, or is held.
local has_lanes
local has_holds = control.uses >= USES_HOLDS
local in_order = control.limits ~= '' and byte(control.limits, QUEUE_LIMITS_IN_ORDER) == 1

--@inline
local function look_at_turns()
  if last_turn == nil then
    local last = redis.call('ZRANGE', key.turns, '-1', '-1', 'WITHSCORES')[2]
    has_lanes, last = last ~= nil, tonumber(last or '-1')
    is_exact = last < MAX_EXACT
    last_turn = last >= 0 and (is_exact and last or 0)
  end
end

-- State::sends_into_lanes. The result of the first call counts for the whole script.
local into_lanes
local function sends_into_lanes()
  if into_lanes == nil then
    look_at_turns()
    into_lanes = not in_order
      and (has_lanes
        or redis.call('ZCOUNT', key.index, FIRST_GROUPED, format('%d', AT_GROUPED * BAND + now)) >= LOOK_AHEAD)
  end
  return into_lanes
end

-- For State::next_deliverable: whether a message in a lane has its turn.
local function has_turn()
  if redis.call('ZCOUNT', key.index, FIRST_IN_LANES, LAST_IN_LANES) > 0 then
    for _, lane in ipairs(redis.call('ZRANGEBYSCORE', key.turns, '0', '+inf', 'LIMIT', '0', '2')) do
      if lane ~= '' then
        return true
      end
    end
  end
  return false
end

-- Turns::first_hold behind the first `ended` holds, as a score: when it ends, or nil.
local function first_hold(ended)
  local score = redis.call('ZREVRANGEBYSCORE', key.turns, '(' .. NO_TURN, '-inf', 'WITHSCORES', 'LIMIT', ended, '1')[2]
  return score and NO_TURN - score
end

-- Turns::join.
local function join(lane)
  if not new_turns[lane] then
    last_turn, new_turns[lane] = (last_turn or 0) + 1, true
    local n = #new_turns
    new_turns[n + 1], new_turns[n + 2] = format('%d', last_turn), lane
  end
end
