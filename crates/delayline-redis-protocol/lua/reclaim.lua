-- State::reclaim: takes back leases that have run out.
-- Reads the first of them with their details; adds to deaths and writes what it decides.
--@inline
local function reclaim()
  -- READ
  local last = format('%d', AT_LEASED * BAND + now)
  local members =
    redis.call('ZRANGEBYSCORE', key.index, FIRST_LEASED, last, 'LIMIT', '0', format('%d', MAX_RECLAIM))
  -- Looks at what the whole claim may write, so that it fails before anything is written.
  redis.call('LLEN', key.bell)
  if bit.band(control.uses, USES_CONTENTS) ~= 0 then
    redis.call('HLEN', key.contents)
  end
  local ids = {}
  for i, member in ipairs(members) do
    ids[i] = sub(member, MEMBER_ID_FROM)
  end
  local stored = redis.call('HMGET', key.details, unpack(ids))

  -- DECIDE
  local new_finished, new_details, new_places, new_records = {}, {}, {}, {}
  local removed, gone = {}, {}
  --@functions
  for i, member in ipairs(members) do
    local id, entry = ids[i], stored[i]
    if not (entry and readable_details(entry) and sub(entry, DETAILS_SEQUENCE) == sub(member, MEMBER_SEQUENCE)) then
      local record = redis.call('HGET', key.records, id)
      if is_stray(id, member, record) then
        removed[#removed + 1] = member
      else
        local left, stub = remains(member, record, now)
        push(new_details, id, left)
        push(new_places, dead_score(), member)
        push(deaths, UNREADABLE, id)
        if stub then
          push(new_records, id, stub)
        end
      end
    elseif byte(entry, DETAILS_STATE) == LEASE_CANCELLING then
      finish(id, sub(entry, DETAILS_DIGEST), CANCELLED, '')
      removed[#removed + 1] = member
    else
      local d = read_details(entry)
      if d.state == LEASE_OPEN then
        d.crashes, d.settled, d.state = d.crashes + 1, 0, LEASE_CLOSED
        d.reason = d.crashes >= d.max_crashes and MAX_CRASHES or 0
        push(new_details, id, write_details(d))
      end
      -- If it was closed, a torn file has kept the half of a settlement: this is the other half.
      if d.reason ~= 0 then
        push(new_places, dead_score(), member)
        push(deaths, d.reason, id)
      else
        push(new_places, due_score(d.level, d.due), member)
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
