-- delayline 0.1.0, schema 2: stats
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
local function count(band, to)
return redis.call('ZCOUNT', KEYS[2], band * 281474976710656, band * 281474976710656 + to)
end
local scheduled, ready, earliest = 0, 0, nil
for level = 0, 3 do
local base = level * 281474976710656
local first = redis.call('ZRANGEBYSCORE', KEYS[2], base, base + 253402300799999,
'WITHSCORES', 'LIMIT', 0, 1)
if first[2] then
earliest = math.min(earliest or 281474976710655, tonumber(first[2]) - base)
local due = count(level, now)
scheduled, ready = scheduled + count(level, 253402300799999) - due, ready + due
end
end
return {
0, now, control.revision, scheduled, ready, count(4, 253402300799999),
count(5, 253402300799999), control.paused, earliest or -1, control.sequence, control.acked,
control.cancelled, control.purged, control.relayed, control.expired, control.replaced,
redis.call('GETRANGE', KEYS[3], '0', format('%d', 200 - 1)),
}
