-- For the scripts that audit: notes findings in `results`, each as a kind and two values:
--   FOUND_MALFORMED_ENTRY: band, ''      FOUND_RECORD_COUNT: records, indexed
--   FOUND_MISSING_RECORD: id, ''         FOUND_CONSERVATION: enqueued, accounted
--   FOUND_WRONG_RECORD: id, ''           FOUND_ORPHAN: id, ''
--   FOUND_MISSING_DETAILS: id, ''        FOUND_MISSING_TURN: id, ''

local results = {ANSWER_RESULTS, now, control.revision, 0, 0, 0, 0, 0, 0}

local function find(kind, first, second)
  local n = #results
  results[n + 1], results[n + 2], results[n + 3] = kind, first, second
end

-- Whether the state in the details fits the band.
local function fits(band, details)
  local state, reason = LEASE_CLOSED, 0
  if details then
    state, reason = byte(details, DETAILS_STATE), byte(details, DETAILS_REASON)
  end
  return (band == AT_LEASED) == (state ~= LEASE_CLOSED) and (band == AT_DEAD) == (reason ~= 0)
end

-- Whether a lane is in the ring, is held, or waits for a slot that a message holds. Without a limit
-- of groups, which may have been lost with the control record, it waits for none.
local function has_its_turn(lane)
  local score, number = redis.call('ZSCORE', key.turns, lane), format('%d', (struct.unpack(INSTANT, lane)))
  return score and (tonumber(score) >= 0 or has_holds and tonumber(score) < tonumber(NO_TURN)
    or most_of_group and score == NO_TURN and redis.call('ZCOUNT', key.slots, number, number) > 0)
end

-- Notes what is wrong with an entry of the index.
local function examine(band, member, instant)
  local id = id_of(member)
  if #id == 0 or #id > MAX_ID_BYTES then
    return find(FOUND_MALFORMED_ENTRY, band, '')
  end
  local record, details = redis.call('HGET', key.records, id), redis.call('HGET', key.details, id)
  local _, limits = read_record(record)
  if not has_content(id, record) then
    return find(FOUND_MISSING_RECORD, id, '')
  elseif member_of(record, id) ~= member or band <= LAST_LEVEL and level_of(record) ~= band
    or band >= AT_LANES and level_of(record) ~= AT_GROUPED
    or band == AT_LANES and struct.pack(INSTANT, instant) ~= lane_of(record) then
    return find(FOUND_WRONG_RECORD, id, '')
  end
  if band == AT_LANES and not has_its_turn(lane_of(record)) then
    find(FOUND_MISSING_TURN, id, '')
  end
  if bit.band(control.uses, USES_UPDATES) ~= 0 then
    local update = redis.call('HGET', key.updates, id)
    local follows = has_follower(update, sub(record, RECORD_SEQUENCE))
    if follows and band ~= AT_LEASED or update and not follows and #update ~= UPDATES_BYTES then
      return find(FOUND_ORPHAN, id, '')
    end
  end
  local readable = not details or readable_details(details) and are_of(details, record, limits)
  if not readable or not fits(band, details) then
    find(FOUND_MISSING_DETAILS, id, '')
  end
end

-- Examines up to `limit` entries behind the position, and notes the position of the last. Calls
-- `wrong`, if there is one, for each entry with a finding. Returns how many it examined.
local function examine_entries(position, limit, wrong)
  local examined = 0
  for band = 0, LAST_BAND do
    local entries = walk(band, 0, MAX_TIMESTAMP, position, limit - examined)
    for i = 1, #entries, 2 do
      local member, before = entries[i], #results
      examine(band, member, tonumber(entries[i + 1]) - band * BAND)
      if wrong and #results > before then
        wrong(member)
      end
      examined = examined + 1
      results[6], results[7] = band, tonumber(entries[i + 1]) - band * BAND
      results[8], results[9] = sequence_of(member)
    end
  end
  return examined
end

-- Calls `found` for each range of scores between the bands, with the band in front of it.
local function each_gap(found)
  found(0, '-inf', '(0')
  for band = 0, LAST_BAND do
    local to = band < LAST_BAND and format('(%.0f', (band + 1) * BAND) or '+inf'
    found(band, format('(%.0f', band * BAND + MAX_TIMESTAMP), to)
  end
end
