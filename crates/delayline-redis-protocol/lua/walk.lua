-- For the scripts that page through the sorted sets.

local due = {
  count = function(from, to) return redis.call('ZCOUNT', key.due, from, to) end,
  range = function(from, to) return redis.call('ZRANGE', key.due, from, to, 'WITHSCORES') end,
}
local leased = {
  count = function(from, to) return redis.call('ZCOUNT', key.leased, from, to) end,
  range = function(from, to) return redis.call('ZRANGE', key.leased, from, to, 'WITHSCORES') end,
}
local dead = {
  count = function(from, to) return redis.call('ZCOUNT', key.dead, from, to) end,
  range = function(from, to) return redis.call('ZRANGE', key.dead, from, to, 'WITHSCORES') end,
}

-- The rank of the first entry after (score, sequence), by binary search among equal scores:
-- a million messages may be due in one millisecond.
local function rank_after(index, score, sequence)
  local low = index.count('-inf', format('(%.0f', score))
  local high = index.count('-inf', score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local member = index.range(middle, middle)[1]
    if #member >= 8 and struct.unpack('>I8', member) > sequence then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end

-- Up to `limit` entries with scores of `from` to `to`, after the position if there is one.
local function walk(index, from, to, position, limit)
  local first = index.count('-inf', format('(%.0f', from))
  local last = index.count('-inf', to)
  if position then
    first = math.max(first, rank_after(index, position.score, position.sequence))
  end
  last = math.min(last, first + limit)
  if first >= last then
    return {}
  end
  return index.range(first, last - 1)
end
