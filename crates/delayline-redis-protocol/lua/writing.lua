-- For the scripts that change the queue: their first write and their last one.

-- The first write of a script that must also work at maxmemory: it changes nothing (no field has
-- an empty name), it is allowed there, and after it Redis allows the script every other write. It
-- fails if the key holds something else.
local writing = false
local function begin_writes()
  if not writing then
    redis.call('HDEL', key.records, '')
    writing = true
  end
end

local function commit(changed)
  local c = control
  if changed then
    c.revision = c.revision + 1
  end
  redis.call('SET', key.control, struct.pack(CONTROL, SCHEMA_VERSION, c.revision, c.sequence,
    c.acked, c.cancelled, c.purged, c.expired, c.paused, c.uses, c.finished_since,
    c.journal_since, c.armed, c.armed_until))
end
