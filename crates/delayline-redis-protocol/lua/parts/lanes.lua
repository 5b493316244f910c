-- Messages with a group. While such a message waits in a lane, its score is that of the lane. Its
-- due instant is in its details, or in its record if it has no details.

-- When a message in a lane was due.
local function due_in_lane(id, record, entry)
  if entry and readable_details(entry) and sub(entry, DETAILS_SEQUENCE) == sub(record, RECORD_SEQUENCE) then
    return (struct.unpack(INSTANT, entry, DETAILS_DUE_FROM))
  end
  return #record >= RECORD_BYTES + GROUP_BYTES
    and math.min(struct.unpack(INSTANT, record, RECORD_DUE_FROM), MAX_TIMESTAMP) or now
end

-- A record or details with another due instant, which is behind the first `head` bytes.
local function with_due(record, head, due)
  return sub(record, 1, head) .. struct.pack(INSTANT, due) .. sub(record, head + INSTANT_BYTES + 1)
end

-- Keeps a new due instant of a waiting message with a group.
local function keep_due(id, record, due)
  local entry = redis.call('HGET', key.details, id)
  if entry and readable_details(entry) and sub(entry, DETAILS_SEQUENCE) == sub(record, RECORD_SEQUENCE) then
    push(new_details, id, with_due(entry, DETAILS_DUE_FROM - 1, due))
  else
    push(revived, id, with_due(record, RECORD_BYTES, due))
  end
end
