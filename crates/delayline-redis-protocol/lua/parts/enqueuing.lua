-- For the scripts that enqueue messages which are no updates.

-- A message that expires, is large or has a group. Sets new_places, new_records and new_contents.
--@inline
local function put_unusual()
  local digest, lane, place = expires and EXPIRING_MESSAGE_DIGEST_FROM or NEW_MESSAGE_DIGEST_FROM, '', nil
  local head, its_due, rest = '', '', digest
  if grouped then
    rest = digest + NEW_MESSAGE_BYTES + INSTANT_BYTES
    head, its_due, lane = sub(item, digest, rest - INSTANT_BYTES - 1), due_bytes, sub(item, rest, rest + LANE_BYTES - 1)
    if in_lane then
      -- Shortcuts lane_score and join: a function that is defined for each message costs much.
      place = lane_places[lane]
      if not place then
        place = format('%d', AT_LANES * BAND + (struct.unpack(INSTANT, lane)))
        lane_places[lane] = place
      end
      if not new_turns[lane] then
        last_turn, new_turns[lane] = (last_turn or 0) + 1, true
        local n = #new_turns
        new_turns[n + 1], new_turns[n + 2] = format('%d', last_turn), lane
      end
    end
  end
  local form, record = byte(item, digest + NEW_MESSAGE_FORM - 1), nil
  if expires or form % GROUPED >= LARGE then
    local content = digest + NEW_MESSAGE_BYTES + (bit.band(form, LIMITED) ~= 0 and LIMITS_BYTES or 0)
    if grouped then
      content = content + GROUP_BYTES + byte(item, digest + NEW_MESSAGE_BYTES + GROUP_BYTES - 1)
    end
    record = high .. low .. enqueued_at .. head .. its_due .. sub(item, rest, content - 1)
    if expires then
      record = record .. pack(INSTANT, instant(item, EXPIRING_MESSAGE_EXPIRES_FROM))
    end
    if form % GROUPED >= LARGE then
      local n = #new_contents
      new_contents[n + 1], new_contents[n + 2] = id, sub(item, content + LENGTHS_BYTES)
      record = record .. sub(item, content, content + LENGTHS_BYTES - 1)
    else
      record = record .. sub(item, content)
    end
  else
    record = high .. low .. enqueued_at .. head .. its_due .. sub(item, rest)
  end
  score = score or due_score(level, due)
  new_places[placed + 1] = place or score
  new_places[placed + 2], new_records[recorded + 2] = high .. low .. lane .. id, record
end

-- Leaves out lanes that are in a short ring. ZADD would compare each of them with all of it.
--@inline
local function leave_out_known_turns()
  local count = #new_turns
  if count >= 8 and redis.call('ZCARD', key.turns) <= SHORT_RING then
    local known, left = {}, 0
    for _, lane in ipairs(redis.call('ZRANGE', key.turns, '0', '-1')) do
      known[lane] = true
    end
    for i = 1, count, 2 do
      local turn, lane = new_turns[i], new_turns[i + 1]
      new_turns[i], new_turns[i + 1] = nil, nil
      if not known[lane] then
        new_turns[left + 1], new_turns[left + 2] = turn, lane
        left = left + 2
      end
    end
  end
end

-- For a record of this id. Reads its place; sets known_digest and status if the message is live.
--@inline
local function judge_live()
  local record = records[i]
  local band, instant = place_of(member_of(record, id))
  if band or not is_over(record, past[i], past[i] and redis.call('HGET', key.details, id)) then
    known_digest, status = digest_of(record), READY
    if band == AT_DEAD then
      status = DEAD
    elseif band == AT_LEASED then
      status = LEASED
    elseif band and instant > now and band ~= AT_LANES then
      status = SCHEDULED
    end
  end
end

-- State::enqueue, for each message of these runs. Reads count, the number of messages; runs, ids
-- and messages in ARGV, with before_ids arguments before them; records and past of the ids. Sets
-- results, with before_results before them; new_places and new_records, which have `placed` and
-- `recorded` elements; new_contents, reused, first_due and last, the number of the latest message.
-- The result of those in `unsent` is 0.
--@inline
local function enqueue_runs()
  local pack, char = struct.pack, string.char
  local enqueued_at = pack(INSTANT, now)
  -- All but the last byte of a sequence number is mostly that of the one before.
  local sequence, high, was_grouped, lane_places = control.sequence, nil, false, {}
  for run = 1, #runs, RUN_BYTES do
    local length, flags, level = struct.unpack(RUN_FORMAT, runs, run)
    local due = instant(runs, run + RUN_DUE_FROM - 1)
    local score, expires, grouped, in_lane = nil, flags >= EXPIRING, level == AT_GROUPED, false
    local usual = not expires and not grouped
    if grouped ~= was_grouped then
      high, was_grouped = nil, grouped
    end
    if grouped and due <= now then
      in_lane = sends_into_lanes()
    end
    local due_bytes = grouped and pack(INSTANT, due)
    local first = last + 1
    last = last + length
    for i = first, last do
      local id, item, known_digest, status = ARGV[before_ids + i], ARGV[before_ids + count + i], nil, nil
      if records[i] then
        judge_live()
      end
      --@with unsent
      if unsent[i] then
        status, known_digest = 0, nil -- not a status: the result is 0
      end
      if not status and past[i] then
        if flags % 2 == REUSES then
          reused[#reused + 1] = id
        else
          known_digest, status = sub(past[i], FINISHED_DIGEST), byte(past[i], FINISHED_STATUS)
        end
      end
      if status then
        local digest = expires and sub(item, EXPIRING_MESSAGE_DIGEST) or sub(item, NEW_MESSAGE_DIGEST)
        local is_known = status == 0 or known_digest == digest
        results[before_results + i] = is_known and -status or ENQUEUE_CONFLICT - status
      else
        sequence = sequence + 1
        local low = char(sequence % 256)
        if low == '\0' or not high then
          high = sub(pack(U64, sequence), HIGH_SEQUENCE)
          if grouped then
            high = OF_GROUP_BYTE .. sub(high, 2)
          end
        end
        new_records[recorded + 1] = id
        if usual and byte(item, NEW_MESSAGE_FORM) < LARGE then
          -- Shortcuts put_unusual.
          score = score or due_score(level, due)
          new_places[placed + 1], new_places[placed + 2] = score, high .. low .. id
          new_records[recorded + 2] = high .. low .. enqueued_at .. item
        else
          put_unusual()
        end
        placed, recorded = placed + 2, recorded + 2
        if due < first_due then
          first_due = due
        end
        results[before_results + i] = due
      end
    end
  end
  control.sequence = sequence
  leave_out_known_turns()
end
