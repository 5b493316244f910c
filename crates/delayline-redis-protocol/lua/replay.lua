-- A part of claim.lua: the leases of a claim that is repeated, as far as they still hold.

local count = #journaled >= 18 and struct.unpack('>I2', journaled, 17) or 0
local position = 19 + count
if position > #journaled then
  count = 0 -- it is damaged
end
for i = 1, count do
  local length = byte(journaled, 18 + i)
  local id = sub(journaled, position, position + length - 1)
  position = position + length
  local entry, record = redis.call('HGET', key.details, id), false
  if entry and readable_details(entry) and sub(entry, 11, 26) == claim_id then
    record = redis.call('HGET', key.records, id)
  end
  local content = read_record(record)
  if content then
    local score = tonumber(redis.call('ZSCORE', key.leased, member_of(record, id)) or 0)
    local whole = score > now and score <= MAX_TIMESTAMP and whole_record(id, record, content)
    if whole then
      local n = #results
      results[n + 1], results[n + 2] = id, whole
      results[n + 3] = struct.pack('>I6', score) .. entry
      delivered = delivered + 1
    end
  end
end
