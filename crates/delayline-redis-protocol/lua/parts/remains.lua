-- For the scripts that meet damaged messages: what becomes of them.

-- What is remembered of a finished message, or false. Not by the control record, which knows
-- nothing of an operation that was torn: the keys go by themselves when their time has come.
local function finished_as(id)
  return redis.call('HGET', key.finished_new, id) or redis.call('HGET', key.finished_old, id)
end

local function is_id(id)
  return #id >= 1 and #id <= MAX_ID_BYTES
end

-- Whether an entry that leads to no readable message may go: it never belonged to one, its message
-- has finished, or the record of that id has a place of its own.
local function is_stray(id, member, record)
  if not is_id(id) or not record and finished_as(id) then
    return true
  end
  local other = record and member_of(record, id)
  return other and other ~= member and redis.call('ZSCORE', key.index, other)
end

-- What is left of a message that cannot be read: details of a dead letter, and a record, a new one
-- if there is none to keep. What stood in its place becomes the payload, for an operator to see.
-- That is never delivered: its digest is NO_DIGEST. It is to be written after the message has
-- become a dead letter.
local function remains(id, member, record, due)
  local stub, is_grouped = false, byte(member, MEMBER_SEQUENCE_FROM) == OF_GROUP
  local position, limits = read_record(record)
  if not position or member_of(record, id) ~= member
    or not whole_record(id, record, position) then
    limits = STRAY_LIMITS
    stub = sub(member, MEMBER_SEQUENCE) .. struct.pack(INSTANT, now) .. NO_DIGEST
      .. string.char(STRAY_LEVEL + LIMITED + (is_grouped and GROUPED or 0))
      .. (is_grouped and struct.pack(INSTANT, due) .. sub(member, MEMBER_LANE) .. '\0' or '')
      .. limits .. sub(record or '', 1, SMALL)
  end
  local d = fresh_details(sub(member, MEMBER_SEQUENCE), fixed_of(stub or record, limits), lane_of(stub or record))
  d.due, d.reason = due, UNREADABLE
  return write_details(d), stub
end
