-- For the scripts that ask whether a message can be delivered; after record_reading.lua.

-- Whether a record can be read and its content is there, wherever that stands. It reads none that is
-- large.
local function has_content(id, record)
  local position = read_record(record)
  if not position or byte(record, 23) < LARGE then
    return position
  end
  local headers, payload = content_lengths(record, position)
  return redis.call('HSTRLEN', key.contents, id) == 2 + headers + payload
end
