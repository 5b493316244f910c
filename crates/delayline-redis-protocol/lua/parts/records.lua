-- Records: what was enqueued, as `record` in layout.rs describes it. An ordinary message needs 23
-- bytes beside its payload. Large contents stand in `contents`, so that scripts that need none do
-- not read them.

-- The id's member in `index`: ties in a sorted set go by the bytes of the member, so the sequence
-- number in front keeps first-in-first-out.
local function member_of(record, id)
  if byte(record, RECORD_SEQUENCE_FROM) == OF_GROUP then
    return sub(record, RECORD_SEQUENCE) .. sub(record, RECORD_LANE) .. id
  end
  return sub(record, RECORD_SEQUENCE) .. id
end

local function id_of(member)
  return sub(member, byte(member, MEMBER_SEQUENCE_FROM) == OF_GROUP and GROUPED_ID_FROM or MEMBER_ID_FROM)
end

-- The band in which a message waits: its priority level, or AT_GROUPED.
local function level_of(record)
  local form = byte(record, RECORD_FORM)
  return form >= GROUPED and AT_GROUPED or form % (LAST_LEVEL + 1)
end

-- The number of the group's lane, as it stands in members; '' if there is no group.
local function lane_of(record)
  return byte(record, RECORD_FORM) >= GROUPED and sub(record, RECORD_LANE) or ''
end

-- A record up to its headers, as replies have it.
local function head_of(record)
  local is_grouped = #record >= RECORD_BYTES and byte(record, RECORD_FORM) >= GROUPED
  return sub(record, 1, is_grouped and GROUPED_HEAD_BYTES or RECORD_HEAD_BYTES)
end

local function digest_of(record)
  return sub(record, RECORD_DIGEST)
end

-- Whether headers that begin at `position` fill `length` bytes.
local function readable_headers(text, position, length)
  local last = position + length - 1
  if #text < last then
    return false
  end
  while position <= last do
    local name = byte(text, position)
    if position + U16_BYTES + name > last then
      return false
    end
    position = position + 1 + name + U16_BYTES + struct.unpack(U16, text, position + 1 + name)
  end
  return position == last + 1
end

-- Where the content of a record begins, its limits, and when it expires; nil if it cannot be read.
local function read_record(record)
  if not record or #record < RECORD_BYTES then
    return nil
  end
  if byte(record, RECORD_ENQUEUED_AT_FROM) >= LATE
    and struct.unpack(INSTANT, record, RECORD_ENQUEUED_AT_FROM) > MAX_TIMESTAMP then
    return nil
  end
  local form, position = byte(record, RECORD_FORM), RECORD_BYTES + 1
  if (form >= GROUPED) ~= (byte(record, RECORD_SEQUENCE_FROM) == OF_GROUP) then
    return nil
  end
  if form < LIMITED then
    return position, DEFAULT_LIMITS, NEVER
  end
  if form >= GROUPED then
    if #record < RECORD_BYTES + GROUP_BYTES or struct.unpack(INSTANT, record, RECORD_DUE_FROM) > MAX_TIMESTAMP then
      return nil
    end
    form, position = form - GROUPED, position + GROUP_BYTES + byte(record, RECORD_GROUP_LENGTH)
  end
  local limits, expires_at = DEFAULT_LIMITS, NEVER
  if bit.band(form, LIMITED) ~= 0 then
    limits = sub(record, position, position + LIMITS_BYTES - 1)
    position = position + LIMITS_BYTES
  end
  if bit.band(form, EXPIRES) ~= 0 and #record >= position + INSTANT_BYTES - 1 then
    expires_at, position = struct.unpack(INSTANT, record, position)
  end
  if #record < position - 1 or expires_at > MAX_TIMESTAMP and expires_at ~= NEVER then
    return nil
  end
  local readable = form < HEADED
  if form >= LARGE then
    readable = form < 2 * LARGE and form >= LARGE + HEADED and #record == position + LENGTHS_BYTES - 1
  elseif form >= HEADED and #record >= position + U16_BYTES - 1 then
    local length, headers = struct.unpack(U16, record, position)
    readable = readable_headers(record, headers, length)
  end
  if readable then
    return position, limits, expires_at
  end
end

-- The lengths of headers and payload of a content that begins at `position`.
local function content_lengths(record, position)
  local form = byte(record, RECORD_FORM) % GROUPED
  if form >= LARGE then
    return struct.unpack(LENGTHS, record, position)
  elseif form >= HEADED then
    local headers = struct.unpack(U16, record, position)
    return headers, #record - position - U16_BYTES + 1 - headers
  end
  return 0, #record - position + 1
end

-- A record with its content, wherever that stands; false if it is not there.
local function whole_record(id, record, position)
  local form = byte(record, RECORD_FORM)
  if form % GROUPED < LARGE then
    return record
  end
  local content = redis.call('HGET', key.contents, id)
  local headers, payload = content_lengths(record, position)
  if not content or #content ~= CONTENT_BYTES + headers + payload
    or struct.unpack(U16, content) ~= headers
    or not readable_headers(content, CONTENT_HEADERS_FROM, headers) then
    return false
  end
  return sub(record, 1, RECORD_FORM - 1) .. string.char(form - LARGE)
    .. sub(record, RECORD_FORM + 1, position - 1) .. content
end

-- Digest, level and limits, as in details.
local function fixed_of(record, limits)
  return sub(record, RECORD_DIGEST) .. string.char(level_of(record)) .. limits
end

-- Whether a record can be read and its content is there, wherever that stands. It reads none that
-- is large.
local function has_content(id, record)
  local position = read_record(record)
  if not position or byte(record, RECORD_FORM) % GROUPED < LARGE then
    return position
  end
  local headers, payload = content_lengths(record, position)
  return redis.call('HSTRLEN', key.contents, id) == CONTENT_BYTES + headers + payload
end
