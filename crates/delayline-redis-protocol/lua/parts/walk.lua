-- For the scripts that page through the index.

local function count(from, to)
  return redis.call('ZCOUNT', key.index, from, to)
end

local function range(first, last)
  return redis.call('ZRANGE', key.index, first, last, 'WITHSCORES')
end

-- The sequence number of a member, in two halves: as one number it would be rounded.
local function sequence_of(member)
  return struct.unpack(HALVES, sub(member .. NO_SEQUENCE, MEMBER_SEQUENCE))
end

-- The position that a page goes on from: `index`, `instant` and the halves of the sequence number
-- in ARGV from `first` on, or nothing.
local function position_from(first)
  if not ARGV[first] then
    return nil
  end
  return {
    index = tonumber(ARGV[first]), instant = tonumber(ARGV[first + 1]),
    high = tonumber(ARGV[first + 2]), low = tonumber(ARGV[first + 3]),
  }
end

-- The rank of the first entry after a position, by binary search among equal scores: a million
-- messages may be due in one millisecond.
local function rank_after(position)
  local score = position.index * BAND + position.instant
  local first, last = count('-inf', format('(%.0f', score)), count('-inf', score)
  while first < last do
    local middle = math.floor((first + last) / 2)
    local high, low = sequence_of(range(middle, middle)[1])
    if high > position.high or high == position.high and low > position.low then
      last = middle
    else
      first = middle + 1
    end
  end
  return first
end

-- State::walk: up to `limit` entries of a band with instants of `from` to `to`, after the position
-- if that is in the band; none if it is in a later one.
local function walk(band, from, to, position, limit)
  if limit <= 0 or position and position.index > band then
    return {}
  end
  local first = count('-inf', format('(%.0f', band * BAND + from))
  local last = count('-inf', band * BAND + to)
  if position and position.index == band then
    first = math.max(first, rank_after(position))
  end
  last = math.min(last, first + limit)
  if first >= last then
    return {}
  end
  return range(first, last - 1)
end
