-- Whose turn it is: Turns in delayline-core. The members of `turns` are the numbers of lanes, as
-- they stand in members of `index`, or '' for messages without a group. Of scores from 0 on, the
-- lowest is next; others are those of lanes that wait for a slot, or that are held.
--
-- Lanes that join the ring unless they are in it: score, member; and each of them is a key.
local new_turns = {}
-- The score of the last lane, or false if the ring is empty; nil as long as it is unknown.
local last_turn
local has_holds = control.uses >= USES_HOLDS

--@inline
local function look_at_turns()
  if last_turn == nil then
    local last = tonumber(redis.call('ZRANGE', key.turns, '-1', '-1', 'WITHSCORES')[2] or '-1')
    last_turn = last >= 0 and (last < MAX_EXACT and last or 0)
  end
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
