-- State::redrive. ARGV: now, an instant (7 bytes), ids.
-- Results: the new due instant; -1 not dead, -2 unreadable, -3 not found.

--@include prelude.lua
--@include writing.lua
--@include bell.lua
--@include scheduling.lua
--@include records.lua
--@include record_reading.lua
--@include content_looking.lua
--@include details.lua
--@include details_writing.lua

local ids, due = {}, instant(ARGV[2], 1)
for i = 3, #ARGV do
  ids[i - 2] = ARGV[i]
end
local records = redis.call('HMGET', key.records, unpack(ids))
local stored = redis.call('HMGET', key.details, unpack(ids))
redis.call('ZCARD', key.due)
redis.call('ZCARD', key.dead)

local results, due_pairs, members, new_records, details = {0, now, 0}, {}, {}, {}, {}
for i, id in ipairs(ids) do
  local record, entry = records[i], stored[i]
  if not record then
    results[3 + i] = -3
  elseif not entry or byte(entry) ~= DEAD_PHASE or sub(entry, 27, 34) ~= sub(record, 1, 8) then
    results[3 + i] = -1
  elseif not readable_details(entry) or digest_of(record) == NO_DIGEST or not has_content(id, record) then
    results[3 + i] = -2
  else
    local position, _, expires_at = read_record(record)
    local d = read_details(entry)
    d.phase, d.settled, d.reason, d.failures, d.crashes = WAITING_PHASE, 0, 0, 0, 0
    d.due = due -- for a repair, if no more than this is written
    local n, member = #members, member_of(record, id)
    members[n + 1] = member
    due_pairs[2 * n + 1], due_pairs[2 * n + 2] = due_score(d.level, due), member
    details[2 * n + 1], details[2 * n + 2] = id, write_details(d)
    if expires_at ~= NEVER then
      new_records[#new_records + 1] = id
      new_records[#new_records + 1] = sub(record, 1, 22)
        .. string.char(byte(record, 23) - EXPIRES) .. sub(record, 24, position - 7)
        .. sub(record, position)
    end
    results[3 + i] = due
  end
end

if #members > 0 then
  local ring = rings(due)
  --@ask HSET records, HSET details, ZADD due, ZREM dead, SET control
  begin_writes()
  if #new_records > 0 then
    redis.call('HSET', key.records, unpack(new_records))
  end
  redis.call('HSET', key.details, unpack(details))
  redis.call('ZADD', key.due, unpack(due_pairs))
  redis.call('ZREM', key.dead, unpack(members))
  if ring then
    redis.call('LPUSH', key.bell, '1')
  end
  commit(true)
end
results[3] = control.revision
return results
