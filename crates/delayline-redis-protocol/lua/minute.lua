-- For the scripts that change the queue: the first change in a minute stores what the queue was like when that
-- minute began, and the first in an hour when the hour began. Counts cost something, but only once a minute.

-- What write stores in `history` for this minute, and for the hour if it is a new one; and the number of the minute.
local snapshot, hourly, minute = false, false, math.floor(now / MINUTE)

-- State::look_at_minute. Sets snapshot and hourly. Fails if they may not be written.
--@inline
local function look_at_minute()
  if minute ~= control.minute then
    --@functions
    --@look history
    --@ask HSET history, PEXPIRE history, HDEL history
    local hour = math.floor(minute / 60)
    snapshot = point(minute * MINUTE)
    hourly = hour ~= math.floor(control.minute / 60) and point(hour * HOUR)
  end
end

-- The fields that hold the minutes behind `first`, up to `last`, or the hours.
local function fields_between(list, letter, slots, first, last)
  for number = first + 1, math.min(last, first + slots) do
    list[#list + 1] = letter .. format('%d', number % slots)
  end
end

-- State::store_snapshot. A clock that stepped back has not reached some of the points any more: they go.
--@inline
local function store_snapshot()
  local hour, latest, latest_hour = math.floor(minute / 60), control.minute, math.floor(control.minute / 60)
  local future = {}
  fields_between(future, 'm', HISTORY_MINUTES, minute, latest)
  fields_between(future, 'h', HISTORY_HOURS, hour, latest_hour)
  if #future > 0 then
    redis.call('HDEL', key.history, unpack(future))
  end
  redis.call('HSET', key.history, format('m%d', minute % HISTORY_MINUTES), snapshot)
  if hourly then
    redis.call('HSET', key.history, format('h%d', hour % HISTORY_HOURS), hourly)
  end
  redis.call('PEXPIRE', key.history, HISTORY_RETENTION)
  control.minute, snapshot = minute, false
end
