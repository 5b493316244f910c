-- State::redrive. ARGV: now, a `schedule` (layout.rs), the ids.
-- Results: the new due instant, or REDRIVE_NOT_DEAD, REDRIVE_UNREADABLE, REDRIVE_NOT_FOUND.

--@include prelude.lua
--@include lists.lua
--@include bell.lua
--@include scheduling.lua
--@include totals.lua
--@include places.lua
--@include records.lua
--@include details.lua
--@include write.lua

-- READ
--@reads details, index
local ids, due = {}, instant(ARGV[2], 1)
for i = 3, #ARGV do
  ids[i - 2] = ARGV[i]
end
local records = redis.call('HMGET', key.records, unpack(ids))
local stored = redis.call('HMGET', key.details, unpack(ids))

-- DECIDE
local results = {ANSWER_RESULTS, now, 0}
local revived, new_details, new_places = {}, {}, {}
for i, id in ipairs(ids) do
  local record, entry = records[i], stored[i]
  if not record then
    results[3 + i] = REDRIVE_NOT_FOUND
  elseif place_of(member_of(record, id)) ~= AT_DEAD then
    results[3 + i] = REDRIVE_NOT_DEAD
  elseif not (entry and readable_details(entry) and sub(entry, DETAILS_SEQUENCE) == sub(record, RECORD_SEQUENCE))
    or digest_of(record) == NO_DIGEST or not has_content(id, record) then
    results[3 + i] = REDRIVE_UNREADABLE
  else
    local position, _, expires_at = read_record(record)
    if expires_at ~= NEVER then
      push(revived, id, sub(record, 1, RECORD_FORM - 1) .. string.char(byte(record, RECORD_FORM) - EXPIRES)
        .. sub(record, RECORD_FORM + 1, position - INSTANT_BYTES - 1) .. sub(record, position))
    end
    local d = read_details(entry)
    d.state, d.settled, d.reason, d.failures, d.crashes = LEASE_CLOSED, 0, 0, 0, 0
    d.due = due -- for a repair, if the rest of the operation is lost
    push(new_details, id, write_details(d))
    push(new_places, due_score(d.level, due), member_of(record, id))
    tally(TOTAL_REDRIVEN, 1)
    results[3 + i] = due
  end
end
local ring = #new_places > 0 and rings(due)

-- WRITE
if #new_places > 0 then
  look_at_minute()
  --@first BITFIELD totals
  ask()
  begin_writes()
  write()
  commit()
end
results[3] = control.revision
return results
