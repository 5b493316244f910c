-- State::extend. ARGV: now, lease in ms, then for each lease the id and epoch 8 | claim id 16.
-- Results: 1 done, 2 done and cancelling is requested, -2 stale, -3 missing. The deadline is the
-- same for all: now and the lease.

--@include prelude.lua
--@include writing.lua
--@include details.lua

local ids, leases = {}, {}
for i = 3, #ARGV, 2 do
  ids[#ids + 1], leases[#leases + 1] = ARGV[i], ARGV[i + 1]
end
local stored = redis.call('HMGET', key.details, unpack(ids))

local results, extended, deadline = {0, now, 0}, {}, format('%d', after(tonumber(ARGV[2])))
for i, id in ipairs(ids) do
  local entry = stored[i]
  if not entry then
    results[3 + i] = redis.call('HEXISTS', key.records, id) == 1 and -2 or -3
  elseif readable_details(entry) and sub(entry, 3, 26) == leases[i]
    and (byte(entry) == LEASED_PHASE or byte(entry) == CANCELLING_PHASE) then
    extended[#extended + 1] = deadline
    extended[#extended + 1] = sub(entry, 27, 34) .. id
    results[3 + i] = byte(entry)
  else
    results[3 + i] = -2
  end
end

if #extended > 0 then
  --@ask ZADD leased, SET control
  begin_writes()
  redis.call('ZADD', key.leased, unpack(extended))
  commit(true)
end
results[3] = control.revision
return results
