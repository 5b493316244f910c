-- For the scripts that meet damaged messages: what becomes of them.

local STRAY_LEVEL = 2

-- Whether a message stands in another index than the one that `member` was found in, or under
-- another member: then the entry found is a stray one.
local function stands_elsewhere(id, member, record, in_due, in_leased)
  if redis.call('ZSCORE', key.dead, member)
    or not in_due and redis.call('ZSCORE', key.due, member)
    or not in_leased and redis.call('ZSCORE', key.leased, member) then
    return true
  end
  local other = record and #record >= 8 and member_of(record, id)
  return other and other ~= member and (redis.call('ZSCORE', key.due, other)
    or redis.call('ZSCORE', key.leased, other) or redis.call('ZSCORE', key.dead, other))
end

-- Whether the details belong to the record, or to the entry of this sequence.
local function belong_together(details, sequence, record)
  return sub(details, 27, 34) == sequence
    and (not record or sub(details, 35, 47) == sub(record, 21, 33))
end

-- What is left of a message that cannot be read: details of a dead letter, and a record, a new one
-- if there is none to keep. What stood in its place becomes the payload, for an operator to see.
local function remains(member, record, due)
  local stub = false
  if not readable_record(record) or sub(record, 1, 8) ~= sub(member, 1, 8)
    or not whole_record(sub(member, 9), record) then
    stub = sub(member, 1, 8) .. struct.pack('>I6I6', now, NEVER) .. string.rep('\0', 8)
      .. struct.pack('>I1I2I2I2', STRAY_LEVEL, 1, 1, 0) .. sub(record or '', 1, SMALL)
  end
  local d = new_details(stub or record)
  d.due = due
  bury(d, UNREADABLE)
  return write_details(d), stub
end

local function is_id(id)
  return #id >= 1 and #id <= 128
end
