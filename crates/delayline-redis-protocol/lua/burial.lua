-- A part of claim.lua: what becomes of a message that has expired or cannot be read, or whose end a
-- torn file has kept the half of.

--@include details_writing.lua
--@include remains.lua

local left, stub
local expired = fits and expires_at <= now
local reason = expired and EXPIRED or UNREADABLE
if ends_as == CANCELLING_PHASE then
  --@ask ZADD leased
  leased[#leased + 1] = format('%d', now) -- the next claim takes it back, and that is its end
  leased[#leased + 1] = member
elseif ends_as == DEAD_PHASE then
  left, reason = entry, byte(entry, 58)
elseif expired then
  local d = entry and read_details(entry)
    or new_details(sub(record, 1, 8), fixed_of(record, limits))
  d.due = due[i]
  bury(d, reason)
  left = write_details(d)
  control.expired = control.expired + 1
elseif is_id(id) and not stands_elsewhere(id, member, record, true, false)
  and (record or not finished_as(id)) then
  left, stub = remains(member, record, due[i])
end
if left then
  if #dead == 0 then
    redis.call('ZCARD', key.dead) -- fails here, before any write, if the key holds something else
    --@ask HSET details, ZADD dead, HSET records
  end
  details[#details + 1] = id
  details[#details + 1] = left
  dead[#dead + 1] = format('%d', now)
  dead[#dead + 1] = member
  deaths[#deaths + 1] = reason
  deaths[#deaths + 1] = id
end
if stub then
  stubs[#stubs + 1] = id
  stubs[#stubs + 1] = stub
end
