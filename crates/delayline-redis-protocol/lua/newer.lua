-- A part of settle.lua: leases that are in no index. Details may be all that is left of their message, and
-- a newer message of that id stays then.

for n = gone_count, 1, -1 do
  local record = redis.call('HGET', key.records, gone[n])
  if record and sub(record, 1, 8) ~= sub(ended[n], 1, 8) then
    redis.call('HDEL', key.details, gone[n])
    table.remove(gone, n)
  end
end
