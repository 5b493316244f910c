-- A part of claim.lua: takes back leases that have run out.

--@include scheduling.lua
--@include details_writing.lua
--@include finishing.lua
--@include remains.lua

local members =
  redis.call('ZRANGEBYSCORE', key.leased, '-inf', now, 'LIMIT', 0, ARGV[7])
local finished_count = look_at_finished()
redis.call('LLEN', key.bell) -- what comes back may ring
redis.call('ZCARD', key.dead)
redis.call('ZCARD', key.due)
local ids = {}
for i, member in ipairs(members) do
  ids[i] = sub(member, 9)
end
local stored = redis.call('HMGET', key.details, unpack(ids))
local due, dead, details, stubs, finished, gone = {}, {}, {}, {}, {}, {}
for i, member in ipairs(members) do
  local id, entry = ids[i], stored[i]
  local phase = entry and readable_details(entry) and belong_together(entry, sub(member, 1, 8))
    and byte(entry)
  if phase == WAITING_PHASE or phase == DEAD_PHASE then
    -- A settlement of which a torn file has kept the half.
    local index, d = phase == DEAD_PHASE and dead or due, read_details(entry)
    if not stands_elsewhere(id, member, false, false, true) then
      index[#index + 1] = phase == DEAD_PHASE and format('%d', now) or due_score(d.level, d.due)
      index[#index + 1] = member
      if phase == DEAD_PHASE then
        deaths[#deaths + 1] = d.reason
        deaths[#deaths + 1] = id
      end
    end
  elseif not phase then
    local record = is_id(id) and redis.call('HGET', key.records, id)
    if is_id(id) and not stands_elsewhere(id, member, record, false, true)
      and (record or not finished_as(id)) then
      local left, stub = remains(member, record, now)
      details[#details + 1] = id
      details[#details + 1] = left
      dead[#dead + 1] = format('%d', now)
      dead[#dead + 1] = member
      deaths[#deaths + 1] = UNREADABLE
      deaths[#deaths + 1] = id
      if stub then
        stubs[#stubs + 1] = id
        stubs[#stubs + 1] = stub
      end
    end
  elseif phase == CANCELLING_PHASE then
    finished[#finished + 1] = id
    finished[#finished + 1] = string.char(CANCELLED) .. sub(entry, 35, 42)
    gone[#gone + 1] = id
    control.cancelled = control.cancelled + 1
  else
    local d = read_details(entry)
    d.crashes, d.settled, d.phase = d.crashes + 1, 0, WAITING_PHASE
    if d.crashes >= d.max_crashes then
      bury(d, MAX_CRASHES)
      dead[#dead + 1] = format('%d', now)
      dead[#dead + 1] = member
      deaths[#deaths + 1] = MAX_CRASHES
      deaths[#deaths + 1] = id
    else
      due[#due + 1] = due_score(d.level, d.due)
      due[#due + 1] = member
    end
    details[#details + 1] = id
    details[#details + 1] = write_details(d)
  end
end
-- The claim goes on after this, and what it does then depends on what it finds.
--@ask all
begin_writes()
if #details > 0 then
  redis.call('HSET', key.details, unpack(details))
end
if #due > 0 then
  redis.call('ZADD', key.due, unpack(due))
end
if #dead > 0 then
  redis.call('ZADD', key.dead, unpack(dead))
end
if #stubs > 0 then
  redis.call('HSET', key.records, unpack(stubs))
end
if #finished > 0 then
  remember_finished(finished, finished_count)
end
redis.call('ZREM', key.leased, unpack(members))
if #gone > 0 then
  delete_messages(gone)
end
