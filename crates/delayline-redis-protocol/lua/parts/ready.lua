-- For claim and relay: the messages that are ready, and what is to be known of one.

--@include turning.lua

-- Up to `wanted` more ready messages: ids, members and due instants, and the due instant of the
-- first message that is left. Each call continues where the one before has stopped.
local seen = {} -- how many of each level
local function ready_messages(wanted)
  local ids, members, due, count, first_left = {}, {}, {}, 0, NEVER
  -- Many are due at the same time, and to read a score takes long.
  local levels, due_of = control.uses, {}
  for level = 0, LAST_LEVEL do
    local is_used = levels % 2
    levels = (levels - is_used) / 2
    local before_level = count
    if is_used == 1 and not (by_turns and level == NORMAL_LEVEL) then
      local base, room, before = level * BAND, wanted - count, seen[level] or 0
      local last = format('%d', base + (room > 0 and now or MAX_TIMESTAMP))
      local found = redis.call('ZRANGEBYSCORE', key.index, format('%d', base), last,
        'WITHSCORES', 'LIMIT', format('%d', before), format('%d', room + 1))
      seen[level] = before + math.min(#found / 2, room)
      for i = 1, math.min(#found, 2 * room), 2 do
        count = count + 1
        members[count], ids[count] = found[i], sub(found[i], MEMBER_ID_FROM)
        local score = found[i + 1]
        due_of[score] = due_of[score] or tonumber(score) - base
        due[count] = due_of[score]
      end
      local left = found[2 * room + 2]
      if not left and room > 0 then
        left = redis.call('ZRANGEBYSCORE', key.index, '(' .. last,
          format('%d', base + MAX_TIMESTAMP), 'WITHSCORES', 'LIMIT', '0', '1')[2]
      end
      if left then
        first_left = math.min(first_left, tonumber(left) - base)
      end
    end
    if has_groups and level == NORMAL_LEVEL then
      add_groups()
    end
  end
  return ids, members, due, first_left
end

-- For take_ready: what a ready message is. Reads id, record, member and entry; sets sequence,
-- form, content, limits, expires_at, fits, usual_lane, and entry, which is nil where the details
-- are those of another message.
--@inline
local function look_at_message()
  sequence, form = sub(member, MEMBER_SEQUENCE), byte(record or '', RECORD_FORM)
  -- Shortcuts read_record for an ordinary record: a function call for each message is measurable.
  content, limits, expires_at = RECORD_BYTES + 1, DEFAULT_LIMITS, NEVER
  if not form or form >= LIMITED or byte(record, RECORD_ENQUEUED_AT_FROM) >= LATE then
    if form and form >= GROUPED and form < GROUPED + LIMITED and #record >= RECORD_BYTES + GROUP_BYTES
      and byte(record, RECORD_ENQUEUED_AT_FROM) < LATE and byte(sequence) == OF_GROUP
      and struct.unpack(INSTANT, record, RECORD_DUE_FROM) <= MAX_TIMESTAMP
      and sub(record, RECORD_LANE) == sub(member, MEMBER_LANE) and #member == #id + GROUPED_ID_FROM - 1 then
      -- The same for an ordinary record with a group.
      usual_lane, content = sub(record, RECORD_LANE), content + GROUP_BYTES + byte(record, RECORD_GROUP_LENGTH)
      form, content = form - GROUPED, content <= #record + 1 and content
    else
      content, limits, expires_at = read_record(record)
      if form and form >= GROUPED then
        form = bit.bor(form % GROUPED, LIMITED) -- for what it is compared with below
        content = content and member_of(record, id) == member and content
      end
    end
  end
  fits = content and #id > 0 and #id <= MAX_ID_BYTES
    and sub(record, RECORD_SEQUENCE) == sequence
  if fits and entry and not (readable_details(entry) and are_of(entry, record, limits)) then
    -- Those of an earlier message of that id do not matter.
    fits = readable_details(entry) and sub(entry, DETAILS_SEQUENCE) ~= sequence
    entry = nil
  end
end

-- For take_ready: a due message that has expired or cannot be read. Sets deaths and what is to be
-- written.
--@inline
local function bury_due()
  local left, stub, reason
  if fits and expires_at <= now then
    local d = entry and read_details(entry)
      or fresh_details(sub(record, RECORD_SEQUENCE), fixed_of(record, limits), lane_of(record))
    d.state, d.due, d.reason = LEASE_CLOSED, due[i], EXPIRED
    left, reason = write_details(d), EXPIRED
  elseif not is_stray(id, member, record) then
    left, stub = remains(id, member, record, due[i])
    reason = UNREADABLE
  end
  if by_turns and most and byte(member, MEMBER_SEQUENCE_FROM) == OF_GROUP then
    buried[#buried + 1] = member
  elseif in_order then
    free_slot(member)
  end
  if left then
    push(new_details, id, left)
    push(new_places, bury(reason), member)
    push(deaths, reason, id)
  else
    removed[#removed + 1] = member
  end
  if stub then
    push(new_records, id, stub)
  end
end

-- State::take_ready: hands ready messages to `deliver`, up to `max` and the bytes of a batch, and
-- buries those that have expired or cannot be read. Claim and relay have a `deliver` each.
-- Reads index, records and details; sets delivered, looked_at, first_left and what is to be
-- written.
--@inline
local function take_ready()
  -- Functions that are called for each message are defined here once.
  local _ = read_record, level_of, lane_of, fixed_of, readable_details, are_of, member_of
  local bytes, wanted = 0, max
  if has_groups then
    look_ahead()
  end
  repeat
    local ids, members, due
    ids, members, due, first_left = ready_messages(wanted)
    local records, stored = {}, {}
    if #ids > 0 then
      records = redis.call('HMGET', key.records, unpack(ids))
      if has_details then
        stored = redis.call('HMGET', key.details, unpack(ids))
      end
    end
    if by_turns then
      look_when_due()
    end
    local left_from
    for i, id in ipairs(ids) do
      if delivered == max or looked_at - delivered == MAX_BURIALS then
        left_from = i
        break
      end
      local record, member, entry = records[i], members[i], stored[i]
      local sequence, form, content, limits, expires_at, usual_lane, fits, whole
      look_at_message()
      local headers, payload = 0, 0
      if fits and expires_at > now then
        payload = #record - content + 1
        if form >= HEADED then
          headers, payload = content_lengths(record, content)
        end
        bytes = bytes + headers + payload
        if entry then
          bytes = bytes + math.max(0, struct.unpack(U16, entry, DETAILS_SAVED_LENGTH_FROM) - SAVED_BYTES - SAVE_BYTES)
        end
        if bytes > MAX_BATCH_BYTES and delivered > 0 then
          left_from = i
          break
        end
        if headers <= most_headers then
          whole = form < LARGE and record or whole_record(id, record, content)
        end
      end
      looked_at = looked_at + 1
      if by_turns then
        serve()
      end
      if whole then
        delivered = delivered + 1
        deliver()
      else
        bury_due()
      end
    end
    if left_from then
      for left = left_from, #ids do
        local lane = by_turns and groups.turn_of[left]
        if not (lane and lane.ends) then
          first_left = math.min(first_left, due[left])
        end
      end
    end
    -- For each message that is buried it looks at another one, and at more at a time.
    local died = looked_at - delivered
    local is_over = left_from or #ids < wanted or delivered == max or died == MAX_BURIALS
    if by_turns and not left_from and #ids < wanted and delivered < max and died < MAX_BURIALS then
      local position = #ids + 1
      pass_over()
    elseif by_turns and is_over then
      look_at_rest()
    end
    wanted = math.min(max - delivered + died, MAX_BATCH)
  until is_over
  if has_groups then
    if by_turns then
      free_buried()
      keep_turns()
    end
    look_at_lanes()
  end
end
