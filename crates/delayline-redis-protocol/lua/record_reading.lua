-- For the scripts that look into records; after records.lua.

local LEAST_RECORD_BYTES, MOST_HEAD_BYTES = 23, 35
local DEFAULT_LIMITS = '\0\20\0\5' -- max_failures 20, max_crashes 5
local LATE = 230 -- the first byte of MAX_TIMESTAMP

-- Whether headers that begin at `position` fill `length` bytes.
local function readable_headers(text, position, length)
  local last = position + length - 1
  if #text < last then
    return false
  end
  while position <= last do
    local name = byte(text, position)
    if position + 2 + name > last then
      return false
    end
    position = position + 3 + name + struct.unpack('>I2', text, position + 1 + name)
  end
  return position == last + 1
end

-- Where the content of a record begins, its limits, and when it expires; nil if it cannot be read.
local function read_record(record)
  if not record or #record < LEAST_RECORD_BYTES then
    return nil
  end
  if byte(record, 9) >= LATE and struct.unpack('>I6', record, 9) > MAX_TIMESTAMP then
    return nil
  end
  local form, position = byte(record, 23), LEAST_RECORD_BYTES + 1
  if form < LIMITED then
    return position, DEFAULT_LIMITS, NEVER
  end
  local limits, expires_at = DEFAULT_LIMITS, NEVER
  if bit.band(form, LIMITED) ~= 0 then
    limits, position = sub(record, position, position + 3), position + 4
  end
  if bit.band(form, EXPIRES) ~= 0 and #record >= position + 5 then
    expires_at, position = struct.unpack('>I6', record, position)
  end
  if #record < position - 1 or expires_at > MAX_TIMESTAMP and expires_at ~= NEVER then
    return nil
  end
  local readable = form < HEADED
  if form >= LARGE then
    readable = form < 2 * LARGE and form >= LARGE + HEADED and #record == position + 5
  elseif form >= HEADED and #record >= position + 1 then
    readable = readable_headers(record, position + 2, struct.unpack('>I2', record, position))
  end
  if readable then
    return position, limits, expires_at
  end
end

-- The lengths of headers and payload of a content that begins at `position`.
local function content_lengths(record, position)
  local form = byte(record, 23)
  if form >= LARGE then
    return struct.unpack('>I2I4', record, position)
  elseif form >= HEADED then
    local headers = struct.unpack('>I2', record, position)
    return headers, #record - position - 1 - headers
  end
  return 0, #record - position + 1
end

-- A record with its content, wherever that stands; false if it is not there.
local function whole_record(id, record, position)
  local form = byte(record, 23)
  if form < LARGE then
    return record
  end
  local content = redis.call('HGET', key.contents, id)
  local headers, payload = content_lengths(record, position)
  if not content or #content ~= 2 + headers + payload
    or struct.unpack('>I2', content) ~= headers or not readable_headers(content, 3, headers) then
    return false
  end
  return sub(record, 1, 22) .. string.char(form - LARGE) .. sub(record, 24, position - 1) .. content
end

-- Digest, level and limits, as in details.
local function fixed_of(record, limits)
  return sub(record, 15, 22) .. string.char(level_of(record)) .. limits
end
