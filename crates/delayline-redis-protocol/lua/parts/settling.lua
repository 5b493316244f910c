-- For the scripts that settle leases. ARGV: now, the ids, then for each a `settlement` (layout.rs).

-- Reads count, how many settlements there are; sets stored, the details of their messages, and
-- known, what stands of them in `updates`, or false if nothing was updated.
--@inline
local function read_leases()
  stored = redis.call('HMGET', key.details, unpack(ARGV, 2, 1 + count))
  known = bit.band(control.uses, USES_UPDATES) ~= 0
    and redis.call('HMGET', key.updates, unpack(ARGV, 2, 1 + count))
end

-- State::settle_without_details: the id was never claimed, or its message is gone.
local function settle_without_details(i, lease, kind)
  if redis.call('HEXISTS', key.records, ARGV[1 + i]) == 1 then
    return SETTLE_STALE
  end
  local past = finished_of(1 + i, 1 + i)[1]
  if past and lease ~= NO_LEASE and sub(past, FINISHED_LEASE) == lease
    and (kind == ACK) == (byte(past, FINISHED_STATUS) == ACKED) then
    return SETTLE_ALREADY_ENDED - byte(past, FINISHED_STATUS)
  end
  return SETTLE_MISSING
end

-- State::give_back: gives a message back, or buries it. Returns its status.
local function give_back(id, entry, item, kind)
  local d = read_details(entry)
  d.settled, d.state, d.reason = kind, LEASE_CLOSED, 0
  local behind_save = SETTLEMENT_SAVE_FROM + struct.unpack(U16, item, SETTLEMENT_SAVE_LENGTH_FROM)
  local text = sub(item, behind_save)
  if behind_save > SETTLEMENT_SAVE_FROM then
    local save = sub(item, SETTLEMENT_SAVE_FROM, behind_save - 1)
    keep_save()
  end
  if kind == SNOOZE then
    d.due = instant(item, SETTLEMENT_DUE_FROM)
    tally(TOTAL_SNOOZED, 1)
  elseif kind == RELEASE then
    tally(TOTAL_RELEASED, 1)
  elseif kind == RETRY or kind == UNDECODED then
    d.failures = d.failures + 1
    tally(TOTAL_FAILED, 1)
    note_attempt(d, kind, text)
    if d.failures >= d.max_failures then
      d.reason = kind == RETRY and MAX_FAILURES or UNDECODABLE
    else
      d.due = instant(item, SETTLEMENT_DUE_FROM)
    end
  elseif kind == REJECT then
    note_attempt(d, kind, text)
    d.reason = REJECTED
  end
  push(new_details, id, write_details(d))
  if d.reason ~= 0 then
    push(new_places, bury(d.reason), d.sequence .. d.lane .. id)
    return DEAD
  end
  push(new_places, due_score(d.level, d.due), d.sequence .. d.lane .. id)
  first_due = math.min(first_due, d.due)
  return d.due > now and SCHEDULED or READY
end

-- State::end_lease. `update` is the value of the id in `updates`, if there is one. Returns the
-- message's status, and its member.
local function end_lease(id, entry, item, kind, update)
  local status = kind == ACK and ACKED or byte(entry, DETAILS_STATE) == LEASE_CANCELLING and CANCELLED
  local lease, member = sub(item, SETTLEMENT_LEASE), member_by(entry, id)
  if has_follower(update, sub(entry, DETAILS_SEQUENCE)) then
    if not status then
      status = REPLACED
      local counter = (kind == RETRY or kind == UNDECODED) and TOTAL_FAILED
        or kind == SNOOZE and TOTAL_SNOOZED or kind == RELEASE and TOTAL_RELEASED
      if counter then
        tally(counter, 1)
      end
    end
    local due = take_over(id, member, status, lease, kind + ENDED * status, update)
    first_due = math.min(first_due, due)
  elseif status then
    finish(id, sub(entry, DETAILS_DIGEST), status, lease, update)
    ended[#gone] = member
  else
    status = give_back(id, entry, item, kind)
  end
  return status, member
end

-- State::settle, for all settlements. Reads count, stored and known; sets results, first_due and
-- what is to be written. Shortcuts finish: most settlements end their message.
--@inline
local function settle_all()
  local others, freeing, gone_count, has_groups = {}, {}, 0, control.uses >= USES_GROUPS
  for i = 1, count do
    local id, item, entry = ARGV[1 + i], ARGV[1 + count + i], stored[i]
    local is_ack = #item == LEASE_BYTES
    local lease = is_ack and item or sub(item, SETTLEMENT_LEASE)
    -- What else stands in the details of a message that goes does not matter.
    local state = entry and #entry >= DETAILS_BYTES and sub(entry, DETAILS_LEASE) == lease
      and byte(entry, DETAILS_STATE)
    if (state == LEASE_CANCELLING or is_ack and state == LEASE_OPEN) and not (known and known[i]) then
      local status = CANCELLED_BYTE
      if is_ack then
        status, results[3 + i], control.acked = ACKED_BYTE, ACKED, control.acked + 1
      else
        results[3 + i], control.cancelled = CANCELLED, control.cancelled + 1
      end
      gone_count = gone_count + 1
      gone[gone_count] = id
      ended[gone_count] = sub(entry, DETAILS_SEQUENCE)
        .. (has_groups and byte(entry, DETAILS_LEVEL) == AT_GROUPED and sub(entry, DETAILS_LANE) or '') .. id
      freeing[i] = most_of_group and ended[gone_count]
      new_finished[2 * gone_count - 1] = id
      new_finished[2 * gone_count] = status .. sub(entry, DETAILS_DIGEST) .. lease
    else
      others[#others + 1] = i
    end
  end
  if #others > 0 then
    settle_others()
  end
  if most_of_group then
    free_slots()
  end
end

-- For settle_all: frees slots in the order of the settlements, as their groups join the ring.
--@inline
local function free_slots()
  for i = 1, count do
    if freeing[i] then
      local status = results[3 + i]
      free_slot(freeing[i], in_order and (status == SCHEDULED or status == READY))
    end
  end
end

-- For settle_all: the settlements whose numbers stand in others.
--@inline
local function settle_others()
  for _, i in ipairs(others) do
    local entry, item, status = stored[i], ARGV[1 + count + i], SETTLE_STALE
    local lease, kind = sub(item, SETTLEMENT_LEASE), byte(item, SETTLEMENT_KIND) or ACK
    if not entry then
      status = settle_without_details(i, lease, kind)
    elseif readable_details(entry) and sub(entry, DETAILS_LEASE) == lease then
      local settled = byte(entry, DETAILS_SETTLED)
      if byte(entry, DETAILS_STATE) ~= LEASE_CLOSED then
        status, freeing[i] = end_lease(ARGV[1 + i], entry, item, kind, known and known[i])
      elseif settled > 0 and kind == settled % ENDED then
        local reason, before = byte(entry, DETAILS_REASON), math.floor(settled / ENDED)
        local died = reason == MAX_FAILURES or reason == REJECTED or reason == UNDECODABLE
        status = before > 0 and SETTLE_ALREADY_ENDED - before
          or died and SETTLE_ALREADY_ENDED - DEAD or SETTLE_ALREADY_DONE
      end
    end
    results[3 + i] = status
  end
end

-- For write: some of the messages that ended were not in the index. Details may be all that was
-- left of them, and a newer message of that id stays then.
--@inline
local function spare_newer()
  for n = #gone, 1, -1 do
    local record = redis.call('HGET', key.records, gone[n])
    if record and sub(record, RECORD_SEQUENCE) ~= sub(ended[n], MEMBER_SEQUENCE) then
      redis.call('HDEL', key.details, gone[n])
      table.remove(gone, n)
    end
  end
end

-- For look_at_limits: sets first_due if a message with a group is due sooner.
--@inline
local function look_at_groups()
  local first = redis.call('ZRANGEBYSCORE', key.index, FIRST_GROUPED, LAST_GROUPED, 'WITHSCORES', 'LIMIT', '0', '1')[2]
  first_due = first and math.min(first_due, tonumber(first) - AT_GROUPED * BAND) or first_due
  first_due = has_turn() and 0 or first_due
  held_first = math.min(held_first, has_holds and first_hold('0') or NEVER)
end

-- For look_at_limits: Turns::hold, for the group of a message. Reads number and position.
--@inline
local function hold_group()
  local entry, ends = stored[number], instant(holds, position + HOLD_UNTIL_FROM - 1)
  local lane = sub(entry, DETAILS_LANE)
  local turn = group_holds[lane] or tonumber(redis.call('ZSCORE', key.turns, lane) or NO_TURN)
  if byte(entry, DETAILS_LEVEL) == AT_GROUPED and ends > now and turn > NO_TURN - ends then
    if new_turns[lane] then
      new_turns[lane], unblocked = nil, unblocked - 1
    end
    group_holds[lane], held_first = NO_TURN - ends, math.min(held_first, ends)
    push(served, format('%d', NO_TURN - ends), lane)
  end
end

-- What the ends of leases do to the limits of the queue: they hold it, or groups, as `holds` says
-- (`hold`, layout.rs), and each frees a slot. Reads count and results; sets claims_next, freed, and
-- first_due to the first message that a slot was free for.
--@inline
local function look_at_limits()
  local limiter, held_until, held_first, group_holds = nil, 0, NEVER, {}
  for position = 1, #holds, HOLD_BYTES do
    local number = struct.unpack(U16, holds, position)
    if number == 0 then
      claims_next = true
    elseif results[3 + number] > 0 and byte(holds, position + HOLD_OF_GROUP - 1) == 1 then
      hold_group()
    elseif results[3 + number] > 0 then
      held_until = math.max(held_until, instant(holds, position + HOLD_UNTIL_FROM - 1))
    end
  end
  if held_first < NEVER then
    control.uses = bit.bor(control.uses, USES_HOLDS)
  end
  if held_until > 0 and control.limits == '' then
    control.limits = NO_QUEUE_LIMITS
  end
  read_limits()
  if held_until > 0 then
    -- Limiter::hold
    limiter.held_until = math.max(limiter.held_until, held_until)
    keep_limits()
  end
  if limiter and limiter.leased > 0 then
    local leased
    count_leased()
    for i = 1, count do
      freed = freed + (results[3 + i] > 0 and 1 or 0)
    end
    if freed > 0 and leased >= limiter.leased and not claims_next then
      for level = 0, LAST_LEVEL do
        local first = redis.call('ZRANGEBYSCORE', key.index, format('%d', level * BAND),
          format('%d', level * BAND + MAX_TIMESTAMP), 'WITHSCORES', 'LIMIT', '0', '1')[2]
        first_due = first and math.min(first_due, tonumber(first) - level * BAND) or first_due
      end
      if control.uses >= USES_GROUPS then
        look_at_groups()
      end
    end
  end
  if (unblocked > 0 or held_first < NEVER) and redis.call('ZCOUNT', key.index, FIRST_IN_LANES, LAST_IN_LANES) > 0 then
    first_due = unblocked > 0 and 0 or math.min(first_due, held_first)
  end
end
