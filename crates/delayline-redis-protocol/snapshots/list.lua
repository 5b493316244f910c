-- delayline 0.1.0, schema 2: list
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
local status, limit, position = tonumber(ARGV[2]), tonumber(ARGV[3]), position_from(4)
local results, listed = {0, now, control.revision, 0}, 0
local function list(band, from, to)
local found = walk(band, from, to, position, limit - listed)
for i = 1, #found, 2 do
local member, score = found[i], tonumber(found[i + 1])
local id = sub(member, 9)
local sequence, payload, n = sub(member, 1, 8), 0, #results
local record = redis.call('HGET', KEYS[3], id) or ''
local details = redis.call('HGET', KEYS[4], id) or ''
record = sub(record, 1, 8) == sequence and record or ''
details = sub(details, 28, 35) == sequence and details or ''
local content = read_record(record)
if content then
local _
_, payload = content_lengths(record, content)
end
results[n + 1], results[n + 2] = band, member
results[n + 3], results[n + 4], results[n + 5] = sub(record, 1, 35), payload, details
results[n + 6] = score - band * 281474976710656
listed = listed + 1
end
end
if status == 3 then
list(4, 0, 253402300799999)
elseif status == 4 then
list(5, 0, 253402300799999)
else
for level = 0, 3 do
if status == 2 then
list(level, 0, now)
else
list(level, now + 1, 253402300799999)
end
end
end
results[4] = listed == limit and 1 or 0
return results
