-- delayline 0.1.0, schema 2: get
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
local function place_of(member)
local score = tonumber(redis.call('ZSCORE', KEYS[2], member) or -1)
local instant = score % 281474976710656
if score >= 0 and score < 6 * 281474976710656 and instant <= 253402300799999 then
return (score - instant) / 281474976710656, instant
end
end
local function member_of(record, id)
return sub(record, 1, 8) .. id
end
local function digest_of(record)
return sub(record, 15, 22)
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
local function whole_record(id, record, position)
local form = byte(record, 23)
if form < 32 then
return record
end
local content = redis.call('HGET', KEYS[5], id)
local headers, payload = content_lengths(record, position)
if not content or #content ~= 2 + headers + payload
or struct.unpack('>I2', content) ~= headers
or not readable_headers(content, 3, headers) then
return false
end
return sub(record, 1, 23 - 1) .. string.char(form - 32)
.. sub(record, 23 + 1, position - 1) .. content
end
local function readable_details(details)
return #details >= 66 and byte(details, 44) <= 3
and byte(details, 1) <= 2 and byte(details, 3) <= 5
and struct.unpack('>I6', details, 49) <= 253402300799999
and #details >= 66 + struct.unpack('>I2', details, 59)
end
local function remembered(past)
local known = (#past == 9 or #past == 9 + 24
or #past == 9 + 24 + 32)
and byte(past, 1) >= 5 and byte(past, 1) <= 8
return known and past
end
local function finished_of(first, last)
local age, new, old = now - control.finished_since, {}, {}
if last >= first and age < 2 * 3600000 then
new = redis.call('HMGET', KEYS[7], unpack(ARGV, first, last))
end
if last >= first and age < 3600000 then
old = redis.call('HMGET', KEYS[8], unpack(ARGV, first, last))
end
local found = {}
for i = 1, last - first + 1 do
found[i] = new[i] and remembered(new[i]) or old[i] and remembered(old[i])
end
return found
end
local function is_over(record, past, details)
return past and #record >= 23 and sub(past, 2, 9) == digest_of(record)
and (#past == 9 or sub(past, 10, 33) == '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'
or details and sub(past, 10, 33) == sub(details, 4, 27))
end
local function has_follower(update, sequence)
return update and #update >= 66 and sub(update, 33, 40) == sequence
and byte(update, 47) <= 3
and struct.unpack('>I6', update, 41) <= 253402300799999
end
local ids = {}
for i = 2, #ARGV do
ids[i - 1] = ARGV[i]
end
local records = redis.call('HMGET', KEYS[3], unpack(ids))
local stored = redis.call('HMGET', KEYS[4], unpack(ids))
local past = finished_of(2, #ARGV)
local known = bit.band(control.uses, 32) ~= 0
and redis.call('HMGET', KEYS[6], unpack(ids)) or {}
local results = {0, now, control.revision}
for i, id in ipairs(ids) do
local record, details = records[i], stored[i] or ''
local n = #results
results[n + 4], results[n + 5] = '', 0
if record and #details >= 66
and sub(details, 28, 35) ~= sub(record, 1, 8) then
details = ''
end
local content = read_record(record)
local whole = content and (details == '' or readable_details(details))
and whole_record(id, record, content)
local band, instant
if whole then
band, instant = place_of(member_of(record, id))
end
if band then
results[n + 1], results[n + 2], results[n + 3] = whole, details, band * 281474976710656 + instant
if band == 4 and has_follower(known[i], sub(record, 1, 8)) then
local follower = '\0\0\0\0\0\0\0\0' .. sub(known[i], 52)
local position = read_record(follower)
if position then
local _
_, results[n + 5] = content_lengths(follower, position)
results[n + 4] = sub(known[i], 41, 46) .. sub(follower, 1, 35)
end
end
elseif record and (place_of(member_of(record, id)) or not is_over(record, past[i], details)) then
results[n + 1], results[n + 2], results[n + 3] = -1, '', 0
else
local status = past[i] and byte(past[i], 1) or 0
results[n + 1], results[n + 2], results[n + 3] = status, '', 0
end
end
return results
