-- For the scripts that change the queue: the first change in a minute stores what the queue was
-- like when that minute began, and the first in an hour when the hour began. Counts cost something,
-- but only once a minute.

-- What write stores in `history` for this minute, and for the hour if it is a new one; and the
-- number of the minute.
local snapshot, hourly, minute = false, false, math.floor(now / MINUTE)
-- The fields of points that a clock which stepped back has not reached any more, if it did.
local future = false

-- Adds the fields that hold the minutes behind `first`, up to `last`, or the hours.
local function fields_between(list, letter, slots, first, last)
  for number = first + 1, math.min(last, first + slots) do
    list[#list + 1] = letter .. format('%d', number % slots)
  end
end

-- State::look_at_minute. Sets snapshot, hourly and future. Fails if they may not be written.
--@inline
local function look_at_minute()
  if minute ~= control.minute then
    --@functions
    --@look history
    --@ask HSET history, PEXPIRE history, HDEL history
    local hour, latest_hour = math.floor(minute / 60), math.floor(control.minute / 60)
    snapshot = point(minute * MINUTE)
    hourly = hour ~= latest_hour and point(hour * HOUR)
    if minute < control.minute then
      local fields = {}
      future = {}
      fields_between(fields, 'm', HISTORY_MINUTES, minute, control.minute)
      fields_between(fields, 'h', HISTORY_HOURS, hour, latest_hour)
      -- Other slots still hold the past.
      for i, value in ipairs(redis.call('HMGET', key.history, unpack(fields))) do
        if value and (#value < POINT_BYTES or struct.unpack(INSTANT, value, POINT_AT_FROM) > now) then
          future[#future + 1] = fields[i]
        end
      end
    end
  end
end

-- State::store_snapshot.
--@inline
local function store_snapshot()
  if future and #future > 0 then
    redis.call('HDEL', key.history, unpack(future))
  end
  redis.call('HSET', key.history, format('m%d', minute % HISTORY_MINUTES), snapshot)
  if hourly then
    redis.call('HSET', key.history, format('h%d', math.floor(minute / 60) % HISTORY_HOURS), hourly)
  end
  redis.call('PEXPIRE', key.history, HISTORY_RETENTION)
  control.minute, snapshot, future = minute, false, false
end
