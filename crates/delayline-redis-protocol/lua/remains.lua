-- For the scripts that meet damaged messages: what becomes of them.

-- What is remembered of a finished message, or false. Not by the control record, which knows nothing of
-- an operation that was torn: the keys go by themselves when their time has come.
local function finished_as(id)
  return redis.call('HGET', key.finished_new, id) or redis.call('HGET', key.finished_old, id)
end

-- Whether a message stands in another index than the one that `member` was found in, or under
-- another member: then the entry found is a stray one.
local function stands_elsewhere(id, member, record, in_due, in_leased)
  if redis.call('ZSCORE', key.dead, member)
    or not in_due and redis.call('ZSCORE', key.due, member)
    or not in_leased and redis.call('ZSCORE', key.leased, member) then
    return true
  end
  local other = record and member_of(record, id)
  return other and other ~= member and (redis.call('ZSCORE', key.due, other)
    or redis.call('ZSCORE', key.leased, other) or redis.call('ZSCORE', key.dead, other))
end

-- Whether details belong to the sequence number, and to the record, if that can be read.
local function belong_together(details, sequence, fixed)
  return sub(details, DETAILS_SEQUENCE) == sequence and (not fixed or sub(details, DETAILS_FIXED) == fixed)
end

-- What is left of a message that cannot be read: details of a dead letter, and a record, a new one
-- if there is none to keep. What stood in its place becomes the payload, for an operator to see. That
-- is never delivered: its digest is NO_DIGEST. It is to be written after the message has become a dead
-- letter.
local function remains(member, record, due)
  local stub = false
  local position, limits = read_record(record)
  if not position or sub(record, RECORD_SEQUENCE) ~= sub(member, MEMBER_SEQUENCE)
    or not whole_record(sub(member, MEMBER_ID_FROM), record, position) then
    limits = STRAY_LIMITS
    stub = sub(member, MEMBER_SEQUENCE) .. struct.pack(INSTANT, now) .. NO_DIGEST
      .. string.char(STRAY_LEVEL + LIMITED) .. limits .. sub(record or '', 1, SMALL)
  end
  local d = fresh_details(sub(member, MEMBER_SEQUENCE), fixed_of(stub or record, limits))
  d.due = due
  bury(d, UNREADABLE)
  return write_details(d), stub
end

local function is_id(id)
  return #id >= 1 and #id <= MAX_ID_BYTES
end
