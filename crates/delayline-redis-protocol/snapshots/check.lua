-- delayline 0.1.0, schema 1: check
local unpack = unpack or table.unpack
local byte, sub, format = string.byte, string.sub, string.format
local now = tonumber(ARGV[1])
if not now then
local time = redis.call('TIME')
now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local control
do
local stored = redis.call('GET', KEYS[1])
local version = stored and (byte(stored, 1) or 0) or 1
if version > 0 and version ~= 1 then
return {1, version}
elseif version == 0 or stored and #stored ~= 75 then
return {2}
end
local _, revision, sequence, acked, cancelled, purged, expired, paused, uses, finished_since,
journal_since, armed, armed_until =
struct.unpack('>I1I8I8I8I8I8I8I1I1I6I6I6I6', stored or string.rep('\0', 75))
if math.max(revision, sequence, acked, cancelled, purged, expired) >= 9007199254740992 then
return {2}
end
if not stored and redis.call('ZCARD', KEYS[2]) > 0 then
uses = 31
end
control = {
revision = revision, sequence = sequence, acked = acked, cancelled = cancelled,
purged = purged, expired = expired, paused = paused, uses = uses,
finished_since = finished_since, journal_since = journal_since, armed = armed,
armed_until = armed_until,
}
end
local function member_of(record, id)
return sub(record, 1, 8) .. id
end
local function level_of(record)
return byte(record, 23) % (3 + 1)
end
local function readable_headers(text, position, length)
local last = position + length - 1
if #text < last then
return false
end
while position <= last do
local name = byte(text, position)
if position + 2 + name > last then
return false
end
position = position + 1 + name + 2 + struct.unpack('>I2', text, position + 1 + name)
end
return position == last + 1
end
local function read_record(record)
if not record or #record < 23 then
return nil
end
if byte(record, 9) >= 230
and struct.unpack('>I6', record, 9) > 253402300799999 then
return nil
end
local form, position = byte(record, 23), 23 + 1
if form < 4 then
return position, '\0\20\0\5', 281474976710655
end
local limits, expires_at = '\0\20\0\5', 281474976710655
if bit.band(form, 4) ~= 0 then
limits = sub(record, position, position + 4 - 1)
position = position + 4
end
if bit.band(form, 8) ~= 0 and #record >= position + 6 - 1 then
expires_at, position = struct.unpack('>I6', record, position)
end
if #record < position - 1 or expires_at > 253402300799999 and expires_at ~= 281474976710655 then
return nil
end
local readable = form < 16
if form >= 32 then
readable = form < 2 * 32 and form >= 32 + 16 and #record == position + 6 - 1
elseif form >= 16 and #record >= position + 2 - 1 then
local length, headers = struct.unpack('>I2', record, position)
readable = readable_headers(record, headers, length)
end
if readable then
return position, limits, expires_at
end
end
local function content_lengths(record, position)
local form = byte(record, 23)
if form >= 32 then
return struct.unpack('>I2I4', record, position)
elseif form >= 16 then
local headers = struct.unpack('>I2', record, position)
return headers, #record - position - 2 + 1 - headers
end
return 0, #record - position + 1
end
local function fixed_of(record, limits)
return sub(record, 15, 22) .. string.char(level_of(record)) .. limits
end
local function has_content(id, record)
local position = read_record(record)
if not position or byte(record, 23) < 32 then
return position
end
local headers, payload = content_lengths(record, position)
return redis.call('HSTRLEN', KEYS[7], id) == 2 + headers + payload
end
local function readable_details(details)
local phase = byte(details, 1)
return #details >= 60 and byte(details, 43) <= 3
and (phase < 3 or phase == 3
and byte(details, 58) >= 1 and byte(details, 58) <= 5)
and struct.unpack('>I6', details, 48) <= 253402300799999
and #details >= 60 + struct.unpack('>I2', details, 59)
end
local due = {
count = function(from, to) return redis.call('ZCOUNT', KEYS[2], from, to) end,
range = function(from, to) return redis.call('ZRANGE', KEYS[2], from, to, 'WITHSCORES') end,
}
local leased = {
count = function(from, to) return redis.call('ZCOUNT', KEYS[3], from, to) end,
range = function(from, to) return redis.call('ZRANGE', KEYS[3], from, to, 'WITHSCORES') end,
}
local dead = {
count = function(from, to) return redis.call('ZCOUNT', KEYS[4], from, to) end,
range = function(from, to) return redis.call('ZRANGE', KEYS[4], from, to, 'WITHSCORES') end,
}
local function sequence_of(member)
return struct.unpack('>I4I4', sub(member .. '\0\0\0\0\0\0\0\0', 1, 8))
end
local function position_from(first)
if not ARGV[first] then
return nil
end
return {
index = tonumber(ARGV[first]), instant = tonumber(ARGV[first + 1]),
high = tonumber(ARGV[first + 2]), low = tonumber(ARGV[first + 3]),
}
end
local function rank_after(index, score, position)
local first = index.count('-inf', format('(%.0f', score))
local last = index.count('-inf', score)
while first < last do
local middle = math.floor((first + last) / 2)
local high, low = sequence_of(index.range(middle, middle)[1])
if high > position.high or high == position.high and low > position.low then
last = middle
else
first = middle + 1
end
end
return first
end
local function walk(index, base, from, to, position, limit)
local first = index.count('-inf', format('(%.0f', base + from))
local last = index.count('-inf', base + to)
if position then
first = math.max(first, rank_after(index, base + position.instant, position))
end
last = math.min(last, first + limit)
if first >= last then
return {}
end
return index.range(first, last - 1)
end
local results = {0, now, control.revision, 0, 0, 0, 0, 0, 0}
local function find(kind, first, second)
local n = #results
results[n + 1], results[n + 2], results[n + 3] = kind, first, second
end
local function in_another(index, member)
return index ~= due and redis.call('ZSCORE', KEYS[2], member)
or index ~= leased and redis.call('ZSCORE', KEYS[3], member)
or index ~= dead and redis.call('ZSCORE', KEYS[4], member)
end
local function examine(index, number, member)
local id = sub(member, 9)
if #member < 9 or #id > 128 then
return find(1, number, '')
end
local record, details =
redis.call('HGET', KEYS[5], id), redis.call('HGET', KEYS[6], id)
local _, limits = read_record(record)
if not has_content(id, record) then
return find(2, id, '')
elseif member_of(record, id) ~= member or index == due and level_of(record) ~= number then
return find(3, id, '')
elseif in_another(index, member) then
return find(4, id, '')
end
local phase = 0
if details then
phase = readable_details(details) and sub(details, 27, 34) == sub(record, 1, 8)
and sub(details, 35, 47) == fixed_of(record, limits) and byte(details, 1) or -1
end
local fits = index == due and phase == 0
or index == leased and (phase == 1 or phase == 2)
or index == dead and phase == 3
if not fits then
find(5, id, '')
end
end
local function look_for_orphans(number, cursor, found)
if cursor >= 9007199254740992 then
cursor = 0
end
if number == 7 then
local page =
redis.call('HSCAN', KEYS[6], format('%.0f', cursor), 'COUNT', 500)
for i = 1, #page[2], 2 do
if redis.call('HEXISTS', KEYS[5], page[2][i]) == 0 then
found(7, page[2][i])
end
end
if page[1] ~= '0' then
return 7, tonumber(page[1])
end
end
if redis.call('HLEN', KEYS[7]) <= 500 then
for _, id in ipairs(redis.call('HKEYS', KEYS[7])) do
if redis.call('HEXISTS', KEYS[5], id) == 0 then
found(8, id)
end
end
end
end
local function find_orphan(number, id)
if #id >= 1 and #id <= 128 then
find(8, id, '')
else
find(1, number, '')
end
end
local limit, position = tonumber(ARGV[2]), position_from(3)
local examined = 0
local possible = {}
local function check(index, number, base)
possible[index] = (possible[index] or 0) + index.count(base, base + 253402300799999)
if position and position.index > number or examined >= limit then
return
end
local after_position = position and position.index == number and position or nil
local found = walk(index, base, 0, 253402300799999, after_position, limit - examined)
for i = 1, #found, 2 do
local member = found[i]
examine(index, number, member)
examined = examined + 1
results[6], results[7] = number, tonumber(found[i + 1]) - base
results[8], results[9] = sequence_of(member)
end
end
for level = 0, 3 do
check(due, level, level * 281474976710656)
end
check(leased, 4, 0)
check(dead, 5, 0)
results[4] = examined
local goes_on = examined == limit
if not goes_on then
local number, cursor = 7, 0
if position and position.index == 7 then
cursor = position.high * 4294967296 + position.low
end
number, cursor = look_for_orphans(number, cursor, find_orphan)
if number then
goes_on = true
results[6], results[7] = number, 0
results[8], results[9] = math.floor(cursor / 4294967296), cursor % 4294967296
end
end
results[5] = goes_on and 1 or 0
if not goes_on then
local indexed = 0
for number, index in pairs{[0] = due, [4] = leased, [5] = dead} do
local entries = index.count('-inf', '+inf')
if entries ~= possible[index] then
find(1, number, '')
end
indexed = indexed + entries
end
local records = redis.call('HLEN', KEYS[5])
if records ~= indexed then
find(6, records, indexed)
end
local accounted = indexed + control.acked + control.cancelled + control.purged
if accounted ~= control.sequence then
find(7, control.sequence, accounted)
end
end
return results
