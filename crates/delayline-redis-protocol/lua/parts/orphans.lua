-- For the scripts that audit: data of an id without a record, and slots that are held without a
-- lease. A cursor goes through one hash after the other, and a rank through the slots. Contents are
-- examined only if there are few, because HSCAN would return them with their names.

-- Whether groups are limited, and a message with this member is leased, or, in a queue in order,
-- waits.
local function may_hold_slot(member)
  local score = tonumber(redis.call('ZSCORE', key.index, member) or -1)
  local band = math.floor(score / BAND)
  return most_of_group and (band == AT_LEASED or in_order and score >= 0 and band ~= AT_DEAD)
end

-- Calls `found` with ids of details, updates and contents without a record, and with ids and
-- members of messages that hold a slot without a lease. Returns where to continue, or nil.
local function look_for_orphans(number, cursor, found)
  if cursor >= MAX_EXACT then
    cursor = 0 -- no server has given it
  end
  if number == AT_DETAILS then
    local page =
      redis.call('HSCAN', key.details, format('%.0f', cursor), 'COUNT', MOST_ORPHANS)
    for i = 1, #page[2], 2 do
      if redis.call('HEXISTS', key.records, page[2][i]) == 0 then
        found(AT_DETAILS, page[2][i])
      end
    end
    if page[1] ~= '0' then
      return AT_DETAILS, tonumber(page[1])
    end
    number, cursor = AT_UPDATES, 0
  end
  if number == AT_UPDATES and bit.band(control.uses, USES_UPDATES) ~= 0 then
    local page = redis.call('HSCAN', key.updates, format('%.0f', cursor), 'COUNT', MOST_UPDATES)
    for i = 1, #page[2], 2 do
      if redis.call('HEXISTS', key.records, page[2][i]) == 0 then
        found(AT_UPDATES, page[2][i])
      end
    end
    if page[1] ~= '0' then
      return AT_UPDATES, tonumber(page[1])
    end
  end
  if number == AT_SLOTS or number == AT_UPDATES then
    local rank, before = number == AT_SLOTS and cursor or 0, redis.call('ZCARD', key.slots)
    local page = redis.call('ZRANGE', key.slots, format('%d', rank), format('%d', rank + MOST_ORPHANS - 1))
    for _, member in ipairs(page) do
      if not may_hold_slot(member) then
        found(AT_SLOTS, id_of(member), member)
      end
    end
    if #page == MOST_ORPHANS then
      -- A repair removes slots, which moves the ranks.
      return AT_SLOTS, rank + #page - before + redis.call('ZCARD', key.slots)
    end
  end
  if redis.call('HLEN', key.contents) <= MOST_ORPHANS then
    for _, id in ipairs(redis.call('HKEYS', key.contents)) do
      if redis.call('HEXISTS', key.records, id) == 0 then
        found(AT_CONTENTS, id)
      end
    end
  end
end

local function find_orphan(number, id)
  if number == AT_SLOTS and #id >= 1 and #id <= MAX_ID_BYTES then
    find(FOUND_MISSING_TURN, id, '')
  elseif #id >= 1 and #id <= MAX_ID_BYTES then
    find(FOUND_ORPHAN, id, '')
  else
    find(FOUND_MALFORMED_ENTRY, number, '')
  end
end
