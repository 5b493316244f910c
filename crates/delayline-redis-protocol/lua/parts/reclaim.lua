-- When the first lease ends, not counting the `but` earliest ones; nil if there is none.
local function first_end_of_lease(but)
  local first =
    redis.call('ZRANGEBYSCORE', key.index, FIRST_LEASED, LAST_LEASED, 'WITHSCORES', 'LIMIT', but, '1')[2]
  return first and tonumber(first) - AT_LEASED * BAND
end

-- The first leases that have expired. Sets members, ids, their details as stored, and what updates
-- have left as known.
--@inline
local function read_ended_leases()
  local last = format('%d', AT_LEASED * BAND + now)
  members =
    redis.call('ZRANGEBYSCORE', key.index, FIRST_LEASED, last, 'LIMIT', '0', format('%d', MAX_RECLAIM))
  ids = {}
  for i, member in ipairs(members) do
    ids[i] = id_of(member)
  end
  stored = redis.call('HMGET', key.details, unpack(ids))
  known = bit.band(control.uses, USES_UPDATES) ~= 0 and redis.call('HMGET', key.updates, unpack(ids)) or {}
end

-- What becomes of the messages that read_ended_leases has found. Sets deaths, first_back, which is
-- the first due instant of messages that wait again, and what is to be written. Removes the rest
-- from members if it has read too many bytes: damaged messages are read, and may be large.
--@inline
local function take_back()
  local bytes = 0
  for i, member in ipairs(members) do
    local id, entry, waits = ids[i], stored[i], false
    local is_readable = entry and readable_details(entry)
      and sub(entry, DETAILS_SEQUENCE) == sub(member, MEMBER_SEQUENCE)
    if not is_readable then
      bytes = bytes + redis.call('HSTRLEN', key.records, id) + redis.call('HSTRLEN', key.contents, id)
      if bytes > MAX_BATCH_BYTES and i > 1 then
        for left = #members, i, -1 do
          members[left] = nil
        end
        break
      end
    end
    if not is_readable then
      local record = redis.call('HGET', key.records, id)
      if is_stray(id, member, record) then
        removed[#removed + 1] = member
      elseif has_follower(known[i], sub(member, MEMBER_SEQUENCE)) then
        -- A torn file has only the first half of a settlement: this is the other half.
        local lease, settled = NO_LEASE, 0
        if entry and readable_details(entry) then
          lease, settled = sub(entry, DETAILS_LEASE), byte(entry, DETAILS_SETTLED)
        end
        local status = settled < ENDED and REPLACED or math.floor(settled / ENDED)
        first_back = math.min(first_back, take_over(id, member, status, lease, settled, known[i]))
      else
        local left, stub = remains(id, member, record, now)
        push(new_details, id, left)
        push(new_places, bury(UNREADABLE), member)
        push(deaths, UNREADABLE, id)
        if stub then
          push(new_records, id, stub)
        end
      end
    elseif has_follower(known[i], sub(member, MEMBER_SEQUENCE)) then
      local status = byte(entry, DETAILS_STATE) == LEASE_CANCELLING and CANCELLED or REPLACED
      local lease = sub(entry, DETAILS_LEASE)
      if status == REPLACED then
        tally(TOTAL_CRASHED, 1)
      end
      first_back = math.min(first_back, take_over(id, member, status, lease, 0, known[i]))
    elseif byte(entry, DETAILS_STATE) == LEASE_CANCELLING then
      finish(id, sub(entry, DETAILS_DIGEST), CANCELLED, '', known[i])
      removed[#removed + 1] = member
    else
      local d = read_details(entry)
      local was_open = d.state == LEASE_OPEN
      if was_open then
        d.crashes, d.settled, d.state = d.crashes + 1, 0, LEASE_CLOSED
        tally(TOTAL_CRASHED, 1)
        note_attempt(d, 0, '')
        d.reason = d.crashes >= d.max_crashes and MAX_CRASHES or 0
        push(new_details, id, write_details(d))
      end
      -- If it was closed, a torn file has only the first half of a settlement, with its counts:
      -- this is the other half.
      if d.reason ~= 0 then
        push(new_places, was_open and bury(d.reason) or dead_score(), member)
        push(deaths, d.reason, id)
      else
        push(new_places, due_score(d.level, d.due), member)
        first_back, waits = math.min(first_back, d.due), true
      end
    end
    if most_of_group then
      free_slot(member, waits and in_order)
    end
  end
end

-- Reads each key that the claim may write. If one has another type, the claim fails before a write.
--@inline
local function look_at_all()
  redis.call('LLEN', key.bell)
  redis.call('STRLEN', key.totals)
  if bit.band(control.uses, USES_CONTENTS) ~= 0 then
    redis.call('HLEN', key.contents)
  end
  if has_groups then
    --@look turns
    --@look slots
  end
end

-- State::reclaim: reclaims expired leases.
-- Reads the first of them with their details; adds to deaths and writes what it decides.
--@inline
local function reclaim()
  -- READ
  local members, ids, stored, known
  read_ended_leases()
  look_at_all()

  -- DECIDE
  local new_finished, new_details, new_places, new_records = {}, {}, {}, {}
  local removed, gone, first_back = {}, {}, NEVER
  local new_updates, replaced_contents = {}, {}
  take_back()

  -- WRITE. The claim continues after this, and its further writes depend on what it finds. So it
  -- asks about all permissions now.
  look_at_minute()
  --@ask all
  count_finished()
  begin_writes()
  write()
  changed, old_slots, served, holders = true, {}, {}, {}
end
