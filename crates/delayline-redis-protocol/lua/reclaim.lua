-- State::reclaim: takes back leases that have run out.
-- Reads the first of them with their details; adds to deaths and writes what it decides.
--@inline
local function reclaim()
  -- READ
  local members =
    redis.call('ZRANGEBYSCORE', key.leased, '-inf', now, 'LIMIT', '0', format('%d', MAX_RECLAIM))
  -- Looks at what the whole claim may write, so that it fails before anything is written.
  redis.call('LLEN', key.bell)
  redis.call('ZCARD', key.dead)
  redis.call('ZCARD', key.due)
  if bit.band(control.uses, USES_CONTENTS) ~= 0 then
    redis.call('HLEN', key.contents)
  end
  local ids = {}
  for i, member in ipairs(members) do
    ids[i] = sub(member, MEMBER_ID_FROM)
  end
  local stored = redis.call('HMGET', key.details, unpack(ids))

  -- DECIDE
  local new_finished, new_details, new_due, new_dead, new_records = {}, {}, {}, {}, {}
  local old_leased, gone = members, {}
  --@functions
  for i, member in ipairs(members) do
    local id, entry = ids[i], stored[i]
    local phase = entry and readable_details(entry)
      and belong_together(entry, sub(member, MEMBER_SEQUENCE)) and byte(entry, DETAILS_PHASE)
    if phase == PHASE_CANCELLING then
      finish(id, sub(entry, DETAILS_DIGEST), CANCELLED, '')
    elseif phase == PHASE_LEASED then
      local d = read_details(entry)
      d.crashes, d.settled, d.phase = d.crashes + 1, 0, PHASE_WAITING
      if d.crashes >= d.max_crashes then
        bury(d, MAX_CRASHES)
        push(new_dead, format('%d', now), member)
        push(deaths, MAX_CRASHES, id)
      else
        push(new_due, due_score(d.level, d.due), member)
      end
      push(new_details, id, write_details(d))
    elseif phase then
      -- A settlement of which a torn file has kept the half.
      local d = read_details(entry)
      if not stands_elsewhere(id, member, false, false, true) then
        if phase == PHASE_DEAD then
          push(new_dead, format('%d', now), member)
          push(deaths, d.reason, id)
        else
          push(new_due, due_score(d.level, d.due), member)
        end
      end
    else
      local record = is_id(id) and redis.call('HGET', key.records, id)
      if is_id(id) and not stands_elsewhere(id, member, record, false, true)
        and (record or not finished_as(id)) then
        local left, stub = remains(member, record, now)
        push(new_details, id, left)
        push(new_dead, format('%d', now), member)
        push(deaths, UNREADABLE, id)
        if stub then
          push(new_records, id, stub)
        end
      end
    end
  end

  -- WRITE. The claim goes on after this, and what it does then depends on what it finds: so it asks about
  -- everything now.
  --@ask all
  count_finished()
  begin_writes()
  write()
  changed = true
end
