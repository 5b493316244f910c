-- State::relay. ARGV: now, max, TO_LIST or TO_STREAM, at which length the destination is full or 0,
-- and the group of a stream or ''.
-- Results: more (0 or 1, and 2 more if the queue limits leases), whether messages are held back (0
-- or 1), next instant or -1, then the ids of the messages that were moved; then for each message
-- that this call buried the reason, a number, and its id. ANSWER_NO_LAG instead if the server does
-- not know how far the group is.
--
-- What is moved and what is taken back are different messages, so all is decided before anything is
-- written.

--@include prelude.lua
--@include lists.lua
--@include scheduling.lua
--@include totals.lua
--@include places.lua
--@include records.lua
--@include details.lua
--@include lanes.lua
--@include turns.lua
--@include freeing.lua
--@include finished.lua
--@include remains.lua

-- What a relay moves takes no slot of its group. In order, it takes any number of a group in turns.
local most, several, together = in_order and 1 or nil, in_order, false

--@include ready.lua
--@include next_claimable.lua
--@include admitting.lua

local max, kind, limit, consumers = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local results, delivered, deaths, changed = {ANSWER_RESULTS, now, 0, 0, 0, -1}, 0, {}, false
local new_finished, new_details, new_places, new_records = {}, {}, {}, {}
local new_updates, replaced_contents = {}, {}
local removed, gone, elements, due_of, headers_of = {}, {}, {}, {}, {}
local old_turns, stalled = {}, {}
local ring, looked_at = false, 0
-- The due instant of the first message that stays where it is; nil if the queue is paused.
local first_left
-- What a relay moves has no lease: so none is counted.
local limiter, leased, ahead, passed = nil, nil, 0, 0

--@include reclaim.lua
--@include finish.lua
--@include take_over.lua
--@include write.lua

-- How many entries of the stream, which has `length`, the group has not finished: not read, or read
-- and not acknowledged. nil if the server does not tell.
local function backlog(length)
  if redis.call('EXISTS', key.destination) == 0 then
    return 0
  end
  for _, group in ipairs(redis.call('XINFO', 'GROUPS', key.destination)) do
    local fields = {}
    for i = 1, #group, 2 do
      fields[group[i]] = group[i + 1]
    end
    if fields.name == consumers then
      if fields.lag == nil then
        return nil
      end
      -- It is false if entries were deleted behind the one that the group has read last, or that
      -- one itself. It is negative, or too large, if a client has set how many entries the group
      -- has read. No more than all are unread.
      local unread = length
      if fields.lag and fields.lag >= 0 then
        unread = math.min(length, fields.lag)
      end
      return unread + fields.pending
    end
  end
  return length
end

-- State::room: how many more elements the destination takes; nil if the server does not tell. Fails
-- if it is something else.
local function room()
  local length
  if kind == TO_LIST then
    length = redis.call('LLEN', key.destination)
  else
    length = redis.call('XLEN', key.destination)
    if limit > 0 then
      length = backlog(length)
    end
  end
  return length and (limit == 0 and NEVER or math.max(0, limit - length))
end

-- The fields of a stream's entry for headers that fill `length` bytes of a content from `position`
-- on.
local function header_fields(whole, position, length)
  local fields, last = {}, position + length - 1
  while position <= last do
    local name = byte(whole, position)
    local value = position + 1 + name
    local length = struct.unpack(U16, whole, value)
    local n = #fields
    fields[n + 1] = ELEMENT_HEADER .. sub(whole, position + 1, value - 1)
    fields[n + 2] = sub(whole, value + U16_BYTES, value + U16_BYTES + length - 1)
    position = value + U16_BYTES + length
  end
  return fields
end

-- For hand_over: a message that this call moves. `elements` are the payloads, and for a stream
-- `due_of` and `headers_of` have the rest.
-- Reads id, member, record, content, headers, payload, whole and due; sets results and what is to
-- be written.
--@inline
local function deliver()
  elements[delivered] = sub(whole, #whole - payload + 1)
  if kind == TO_STREAM then
    local due_at = due[i]
    texts[due_at] = texts[due_at] or format('%d', due_at)
    due_of[delivered] = texts[due_at]
    headers_of[delivered] = headers > 0 and header_fields(whole, content + U16_BYTES, headers)
  end
  -- Shortcuts finish.
  gone[delivered], removed[#removed + 1] = id, member
  new_finished[2 * delivered - 1] = id
  new_finished[2 * delivered] = RELAYED_BYTE .. sub(record, RECORD_DIGEST)
  results[6 + delivered] = id
end

-- State::hand_over: moves ready messages, and buries those that have expired or cannot be read.
-- Reads index, records and details; sets results, delivered, first_left and what is to be written.
--@inline
local function hand_over()
  -- Many are due at the same time, and few queues with a relay also have workers.
  local texts, has_details = {}, redis.call('HLEN', key.details) > 0
  -- No message has more bytes of headers, and so few become fields that one XADD takes all of them.
  local most_headers = kind == TO_STREAM and MAX_HEADERS_BYTES or NEVER
  local first_removed = #removed
  take_ready()
  before = unblocked
  for i = first_removed + 1, in_order and #removed or 0 do
    free_slot(removed[i])
  end
  control.relayed = control.relayed + delivered
  if delivered > 0 and bit.band(control.uses, USES_UPDATES) ~= 0 then
    for i, update in ipairs(redis.call('HMGET', key.updates, unpack(gone))) do
      if update and #update >= UPDATES_BYTES then
        new_finished[2 * i] = new_finished[2 * i] .. NO_LEASE .. sub(update, UPDATES_TOKENS)
      end
    end
  end
end

-- The elements go to the destination before anything else is written: where the server takes no
-- more, or the user may not write there, nothing has happened.
--@inline
local function put_elements()
  --@first RPUSH destination
  --@first XADD destination
  if kind == TO_LIST then
    redis.call('RPUSH', key.destination, unpack(elements))
  else
    local none = {}
    for i = 1, delivered do
      redis.call('XADD', key.destination, '*', ELEMENT_ID, gone[i], ELEMENT_DUE, due_of[i],
        ELEMENT_PAYLOAD, elements[i], unpack(headers_of[i] or none))
    end
  end
end

-- READ
--@reads index, records, details
local free = room()
if not free then
  return {ANSWER_NO_LAG}
end
local lease_end = first_end_of_lease('0')

-- DECIDE
local next
local before = 0
if control.paused == 0 then
  -- In a queue in order, messages behind an ended lease follow with the next relay.
  max = in_order and lease_end and lease_end <= now and 0 or math.min(max, free)
  read_limits()
  if limiter then
    admit()
  end
  hand_over()
  if limiter then
    spend()
  end
end
local leaving = looked_at
if lease_end and lease_end <= now then
  local members, ids, stored, known, first_back = nil, nil, nil, nil, NEVER
  read_ended_leases()
  take_back()
  lease_end = first_end_of_lease(format('%d', #members))
  first_left = first_left and math.min(first_left, first_back)
end
if first_left and unblocked > before
  and (by_turns and groups.left or redis.call('ZCOUNT', key.index, FIRST_IN_LANES, LAST_IN_LANES)) > 0 then
  first_left = 0
end
next_claimable()
local more = next and next <= now
local held_back = more and delivered >= free
more = more and not held_back
local leases_limited = limiter and limiter.leased > 0
results[4] = (more and 1 or 0) + (leases_limited and 2 or 0)
results[5], results[6] = held_back and 1 or 0, next or -1
for i = 1, #deaths do
  results[#results + 1] = deaths[i]
end

-- A relay that is held back looks at the destination now and then, and no bell tells it anything.
local sleeps = not more and delivered < tonumber(ARGV[2])
local hands_on, is_news, capped = false, false, false
if not held_back then
  tell_sleepers()
end

-- WRITE
changed = changed or #gone > 0 or #new_places > 0 or #removed > 0
if changed or hands_on or is_news then
  if changed then
    look_at_minute()
  end
  ask()
  if delivered > 0 then
    put_elements()
  else
    -- As in begin_writes. It is not always the first write here, so `ask` asks about it.
    redis.call('HDEL', key.records, '')
  end
  write()
  if changed then
    commit()
  else
    keep_control()
  end
end
results[3] = control.revision
return results
