-- A part of claim.lua: the leases of a claim that is repeated, as far as they still hold.

local position = 17
while position <= #journaled do
  local length = byte(journaled, position)
  if position + length > #journaled then
    break
  end
  local id = sub(journaled, position + 1, position + length)
  position = position + 1 + length
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
      results[n + 1], results[n + 2], results[n + 3], results[n + 4] = id, whole, entry, score
      delivered = delivered + 1
    end
  end
end
