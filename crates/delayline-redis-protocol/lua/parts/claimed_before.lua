-- State::claimed_before: the leases of a repeated claim that are still held.
-- Reads last_claim and the data of its messages; sets results and delivered.
--@inline
local function claimed_before()
  local count = #last_claim >= JOURNAL_BYTES and struct.unpack(U16, last_claim, JOURNAL_COUNT_FROM) or 0
  local position = JOURNAL_LENGTHS_FROM + count
  if position > #last_claim then
    count = 0 -- it is damaged
  end
  for i = 1, count do
    local length = byte(last_claim, JOURNAL_LENGTHS_FROM - 1 + i)
    local id = sub(last_claim, position, position + length - 1)
    position = position + length
    local entry, record = redis.call('HGET', key.details, id), false
    if entry and readable_details(entry) and sub(entry, DETAILS_CLAIM_ID) == claim_id
      and byte(entry, DETAILS_STATE) ~= LEASE_CLOSED then
      record = redis.call('HGET', key.records, id)
    end
    local content = read_record(record)
    if content then
      local band, its_deadline = place_of(member_of(record, id))
      local whole = band == AT_LEASED and its_deadline > now and whole_record(id, record, content)
      if whole then
        local n = #results
        results[n + 1], results[n + 2] = id, whole
        results[n + 3] = struct.pack(INSTANT, its_deadline) .. entry
        delivered = delivered + 1
      end
    end
  end
end
