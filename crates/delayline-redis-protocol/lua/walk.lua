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

-- The sequence number of a member, in two halves: as one number it would be rounded.
local function sequence_of(member)
  return struct.unpack(HALVES, sub(member .. NO_SEQUENCE, MEMBER_SEQUENCE))
end

-- The position that a page goes on from: `index`, `instant` and the halves of the sequence number in
-- ARGV from `first` on, or nothing.
local function position_from(first)
  if not ARGV[first] then
    return nil
  end
  return {
    index = tonumber(ARGV[first]), instant = tonumber(ARGV[first + 1]),
    high = tonumber(ARGV[first + 2]), low = tonumber(ARGV[first + 3]),
  }
end

-- The rank of the first entry after a score and a sequence number, by binary search among equal
-- scores: a million messages may be due in one millisecond.
local function rank_after(index, score, position)
  local first = index.count('-inf', format('(%.0f', score))
  local last = index.count('-inf', score)
  while first < last do
    local middle = math.floor((first + last) / 2)
    local high, low = sequence_of(index.range(middle, middle)[1])
    if high > position.high or high == position.high and low > position.low then
      last = middle
    else
      first = middle + 1
    end
  end
  return first
end

-- State::walk: up to `limit` entries with instants of `from` to `to` and scores from `base` on, after the
-- position if there is one.
local function walk(index, base, from, to, position, limit)
  local first = index.count('-inf', format('(%.0f', base + from))
  local last = index.count('-inf', base + to)
  if position then
    first = math.max(first, rank_after(index, base + position.instant, position))
  end
  last = math.min(last, first + limit)
  if first >= last then
    return {}
  end
  return index.range(first, last - 1)
end
