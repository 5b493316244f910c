-- delayline 0.1.0, schema 2: progress
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
new = redis.call('HMGET', KEYS[5], unpack(ARGV, first, last))
end
if last >= first and age < 3600000 then
old = redis.call('HMGET', KEYS[6], unpack(ARGV, first, last))
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
local function result_of(id)
local value = redis.call('HGET', KEYS[7], id)
return value and #value >= 30 and struct.unpack('>I6', value, 1) > now and value
end
local function live_by_details(id, entry)
local band = readable_details(entry) and place_of(sub(entry, 28, 35) .. id)
if band then
return band == 5 and -byte(entry, 3) or 0
end
end
local function live_by_record(id, entry, past)
if redis.call('HEXISTS', KEYS[3], id) == 1 then
local record = past and redis.call('HGET', KEYS[3], id)
if not record or place_of(member_of(record, id)) or not is_over(record, past, entry) then
return 0
end
end
end
local function progress_of(id, entry, past)
local live = entry and live_by_details(id, entry) or live_by_record(id, entry, past)
if live then
return live
elseif past and byte(past, 1) ~= 5 then
return byte(past, 1)
end
local result = result_of(id)
if past and result and sub(past, 10, 33) ~= sub(result, 7, 30) then
result = nil
end
return (past or result) and 5 or -10, result and sub(result, 31)
end
local ids = {}
for i = 2, #ARGV do
ids[i - 1] = ARGV[i]
end
local stored, past = redis.call('HMGET', KEYS[4], unpack(ids)), finished_of(2, #ARGV)
local results, bytes = {0, now, control.revision}, 0
for i, id in ipairs(ids) do
local progress, result = progress_of(id, stored[i], past[i])
bytes = bytes + (result and #result or 0)
if bytes > 4194304 then
break
end
results[#results + 1] = progress
if progress == 5 then
results[#results + 1] = result or 0
end
end
return results
