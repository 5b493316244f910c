-- delayline 0.1.0, schema 2: check
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
local version = stored and (byte(stored, 1) or 0) or 2
if version > 0 and version ~= 2 then
return {1, version}
elseif version == 0 or stored and #stored ~= 100 then
return {2}
end
local _, revision, sequence, acked, cancelled, purged, relayed, expired, replaced, paused, uses,
finished_since, journal_since, armed, armed_until, latest_minute =
struct.unpack('>I1I8I8I8I8I8I8I8I8I1I4I6I6I6I6I4xx', stored or string.rep('\0', 100))
if math.max(revision, sequence, acked, cancelled, purged, expired, relayed, replaced) >= 9007199254740992 then
return {2}
end
if not stored and redis.call('ZCARD', KEYS[2]) > 0 then
uses = 63
end
control = {
revision = revision, sequence = sequence, acked = acked, cancelled = cancelled,
purged = purged, relayed = relayed, expired = expired, paused = paused, uses = uses,
finished_since = finished_since, journal_since = journal_since, armed = armed,
armed_until = armed_until, replaced = replaced, minute = latest_minute, stored = stored,
known_uses = uses,
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
return redis.call('HSTRLEN', KEYS[5], id) == 2 + headers + payload
end
local function readable_details(details)
return #details >= 66 and byte(details, 44) <= 3
and byte(details, 1) <= 2 and byte(details, 3) <= 5
and struct.unpack('>I6', details, 49) <= 253402300799999
and #details >= 66 + struct.unpack('>I2', details, 59)
end
local function has_follower(update, sequence)
return update and #update >= 66 and sub(update, 33, 40) == sequence
and byte(update, 47) <= 3
and struct.unpack('>I6', update, 41) <= 253402300799999
end
local function count(from, to)
return redis.call('ZCOUNT', KEYS[2], from, to)
end
local function range(first, last)
return redis.call('ZRANGE', KEYS[2], first, last, 'WITHSCORES')
end
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
local function rank_after(position)
local score = position.index * 281474976710656 + position.instant
local first, last = count('-inf', format('(%.0f', score)), count('-inf', score)
while first < last do
local middle = math.floor((first + last) / 2)
local high, low = sequence_of(range(middle, middle)[1])
if high > position.high or high == position.high and low > position.low then
last = middle
else
first = middle + 1
end
end
return first
end
local function walk(band, from, to, position, limit)
if limit <= 0 or position and position.index > band then
return {}
end
local first = count('-inf', format('(%.0f', band * 281474976710656 + from))
local last = count('-inf', band * 281474976710656 + to)
if position and position.index == band then
first = math.max(first, rank_after(position))
end
last = math.min(last, first + limit)
if first >= last then
return {}
end
return range(first, last - 1)
end
local results = {0, now, control.revision, 0, 0, 0, 0, 0, 0}
local function find(kind, first, second)
local n = #results
results[n + 1], results[n + 2], results[n + 3] = kind, first, second
end
local function fits(band, details)
local state, reason = 0, 0
if details then
state, reason = byte(details, 1), byte(details, 3)
end
return (band == 4) == (state ~= 0) and (band == 5) == (reason ~= 0)
end
local function examine(band, member)
local id = sub(member, 9)
if #member < 9 or #id > 128 then
return find(1, band, '')
end
local record, details = redis.call('HGET', KEYS[3], id), redis.call('HGET', KEYS[4], id)
local _, limits = read_record(record)
if not has_content(id, record) then
return find(2, id, '')
elseif member_of(record, id) ~= member or band <= 3 and level_of(record) ~= band then
return find(3, id, '')
end
if bit.band(control.uses, 32) ~= 0 then
local update = redis.call('HGET', KEYS[6], id)
local follows = has_follower(update, sub(record, 1, 8))
if follows and band ~= 4 or update and not follows and #update ~= 32 then
return find(7, id, '')
end
end
local readable = not details or readable_details(details)
and sub(details, 28, 35) == sub(record, 1, 8)
and sub(details, 36, 48) == fixed_of(record, limits)
if not readable or not fits(band, details) then
find(4, id, '')
end
end
local function examine_entries(position, limit, wrong)
local examined = 0
for band = 0, 5 do
local entries = walk(band, 0, 253402300799999, position, limit - examined)
for i = 1, #entries, 2 do
local member, before = entries[i], #results
examine(band, member)
if wrong and #results > before then
wrong(member)
end
examined = examined + 1
results[6], results[7] = band, tonumber(entries[i + 1]) - band * 281474976710656
results[8], results[9] = sequence_of(member)
end
end
return examined
end
local function each_gap(found)
found(0, '-inf', '(0')
for band = 0, 5 do
local to = band < 5 and format('(%.0f', (band + 1) * 281474976710656) or '+inf'
found(band, format('(%.0f', band * 281474976710656 + 253402300799999), to)
end
end
local function look_for_orphans(number, cursor, found)
if cursor >= 9007199254740992 then
cursor = 0
end
if number == 7 then
local page =
redis.call('HSCAN', KEYS[4], format('%.0f', cursor), 'COUNT', 500)
for i = 1, #page[2], 2 do
if redis.call('HEXISTS', KEYS[3], page[2][i]) == 0 then
found(7, page[2][i])
end
end
if page[1] ~= '0' then
return 7, tonumber(page[1])
end
number, cursor = 9, 0
end
if number == 9 and bit.band(control.uses, 32) ~= 0 then
local page = redis.call('HSCAN', KEYS[6], format('%.0f', cursor), 'COUNT', 100)
for i = 1, #page[2], 2 do
if redis.call('HEXISTS', KEYS[3], page[2][i]) == 0 then
found(9, page[2][i])
end
end
if page[1] ~= '0' then
return 9, tonumber(page[1])
end
end
if redis.call('HLEN', KEYS[5]) <= 500 then
for _, id in ipairs(redis.call('HKEYS', KEYS[5])) do
if redis.call('HEXISTS', KEYS[3], id) == 0 then
found(8, id)
end
end
end
end
local function find_orphan(number, id)
if #id >= 1 and #id <= 128 then
find(7, id, '')
else
find(1, number, '')
end
end
local limit, position = tonumber(ARGV[2]), position_from(3)
local examined = examine_entries(position, limit)
results[4] = examined
local goes_on = examined == limit
if not goes_on then
local number, cursor = 7, 0
if position and position.index >= 7 then
number, cursor = position.index, position.high * 4294967296 + position.low
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
each_gap(function(band, from, to)
if count(from, to) > 0 then
find(1, band, '')
end
end)
local indexed = redis.call('ZCARD', KEYS[2])
local records = redis.call('HLEN', KEYS[3])
if records ~= indexed then
find(5, records, indexed)
end
local accounted = indexed + control.acked + control.cancelled + control.purged + control.relayed
+ control.replaced
if accounted ~= control.sequence then
find(6, control.sequence, accounted)
end
end
return results
