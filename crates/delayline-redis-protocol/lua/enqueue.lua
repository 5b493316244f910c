-- State::enqueue. ARGV: now, the runs, the ids, then each message as a `new_message`, or as an
-- `expiring_message` if its run says so (layout.rs).
-- Results: the due instant of a created message; minus the status of a duplicate; ENQUEUE_CONFLICT
-- minus the status of a conflict.

--@include prelude.lua
--@include bell.lua
--@include scheduling.lua
--@include places.lua
--@include records.lua
--@include turns.lua
--@include finished.lua
--@include over.lua
--@include enqueuing.lua
--@include write.lua

-- READ
--@reads index, records
local count = (#ARGV - 2) / 2
local records = redis.call('HMGET', key.records, unpack(ARGV, 3, 2 + count))
local past = finished_of(3, 2 + count)

-- DECIDE
local runs, before_ids, before_results, last = ARGV[2], 2, 3, 0
local results, first_due = {ANSWER_RESULTS, now, 0}, NEVER
local new_places, new_records, new_contents, reused = {}, {}, {}, {}
local placed, recorded = 0, 0
enqueue_runs()
if #new_contents > 0 then
  control.uses = bit.bor(control.uses, USES_CONTENTS)
end
local ring = placed > 0 and rings(first_due)

-- WRITE. It takes memory, so it does not begin with begin_writes: Redis refuses its first write
-- then, and it needs no look at the key. An entry without a record, left by a file that was torn
-- there, does not keep its message from being sent again.
if placed > 0 then
  look_at_minute()
  --@first ZADD index
  ask()
  keep_uses()
  write()
  commit()
end
results[3] = control.revision
return results
