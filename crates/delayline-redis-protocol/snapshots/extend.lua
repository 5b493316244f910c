-- delayline 0.1.0, schema 2: extend
local unpack = unpack or table.unpack
local byte, sub, format = string.byte, string.sub, string.format
local now = tonumber(ARGV[1])
if not now then
local time = redis.call('TIME')
now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local function after(delay)
return math.min(now + delay, 253402300799999)
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
local function push(list, first, second)
local n = #list
list[n + 1], list[n + 2] = first, second
end
local function place_of(member)
local score = tonumber(redis.call('ZSCORE', KEYS[2], member) or -1)
local instant = score % 281474976710656
if score >= 0 and score < 6 * 281474976710656 and instant <= 253402300799999 then
return (score - instant) / 281474976710656, instant
end
end
local function readable_details(details)
return #details >= 66 and byte(details, 44) <= 3
and byte(details, 1) <= 2 and byte(details, 3) <= 5
and struct.unpack('>I6', details, 49) <= 253402300799999
and #details >= 66 + struct.unpack('>I2', details, 59)
end
local snapshot, hourly, minute = false, false, math.floor(now / 60000)
local future = false
local ids, leases = {}, {}
for i = 3, #ARGV, 2 do
ids[#ids + 1], leases[#leases + 1] = ARGV[i], ARGV[i + 1]
end
local stored = redis.call('HMGET', KEYS[4], unpack(ids))
local results, new_places = {0, now, 0}, {}
local deadline = format('%d', 4 * 281474976710656 + after(tonumber(ARGV[2])))
for i, id in ipairs(ids) do
local entry = stored[i]
local state = entry and readable_details(entry) and sub(entry, 4, 27) == leases[i]
and byte(entry, 1)
if state == 1 or state == 2 then
local member = sub(entry, 28, 35) .. id
if place_of(member) == 4 then
push(new_places, deadline, member)
results[3 + i] = state == 1 and 1 or 2
else
results[3 + i] = -2
end
elseif entry or redis.call('HEXISTS', KEYS[3], id) == 1 then
results[3 + i] = -2
else
results[3 + i] = -3
end
end
if #new_places > 0 then
do
if minute ~= control.minute then
local function count_to(band, instant)
return redis.call('ZCOUNT', KEYS[2], format('%d', band * 281474976710656), format('%d', band * 281474976710656 + instant))
end
local function point(at)
local waiting, ready = 0, 0
for level = 0, 3 do
waiting, ready = waiting + count_to(level, 253402300799999), ready + count_to(level, at)
end
return struct.pack('>I6I8I8I8I8', at, waiting - ready, ready, count_to(4, 253402300799999),
count_to(5, 253402300799999)) .. (control.stored and sub(control.stored, 10, 65) or '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0')
.. redis.call('GETRANGE', KEYS[5], '0', format('%d', 200 - 1))
end
local function fields_between(list, letter, slots, first, last)
for number = first + 1, math.min(last, first + slots) do
list[#list + 1] = letter .. format('%d', number % slots)
end
end
redis.call('HLEN', KEYS[6])
if redis.acl_check_cmd and not (redis.acl_check_cmd('HSET', KEYS[6], KEYS[6], KEYS[6]) and redis.acl_check_cmd('PEXPIRE', KEYS[6], KEYS[6]) and redis.acl_check_cmd('HDEL', KEYS[6], KEYS[6])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
local hour, latest_hour = math.floor(minute / 60), math.floor(control.minute / 60)
snapshot = point(minute * 60000)
hourly = hour ~= latest_hour and point(hour * 3600000)
if minute < control.minute then
local fields = {}
future = {}
fields_between(fields, 'm', 360, minute, control.minute)
fields_between(fields, 'h', 744, hour, latest_hour)
for i, value in ipairs(redis.call('HMGET', KEYS[6], unpack(fields))) do
if value and (#value < 94 or struct.unpack('>I6', value, 1) > now) then
future[#future + 1] = fields[i]
end
end
end
end
end
do
if redis.acl_check_cmd and not (redis.acl_check_cmd('SET', KEYS[1], KEYS[1])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
if #new_places > 0 then
if redis.acl_check_cmd and not (redis.acl_check_cmd('ZADD', KEYS[2], KEYS[2], KEYS[2])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
end
end
do
redis.call('HDEL', KEYS[3], '')
end
do
do
end
if #new_places > 0 then
redis.call('ZADD', KEYS[2], unpack(new_places))
end
do
end
if snapshot then
do
if future and #future > 0 then
redis.call('HDEL', KEYS[6], unpack(future))
end
redis.call('HSET', KEYS[6], format('m%d', minute % 360), snapshot)
if hourly then
redis.call('HSET', KEYS[6], format('h%d', math.floor(minute / 60) % 744), hourly)
end
redis.call('PEXPIRE', KEYS[6], 2678400000)
control.minute, snapshot, future = minute, false, false
end
end
end
do
control.revision = control.revision + 1
do
local c = control
redis.call('SET', KEYS[1], struct.pack('>I1I8I8I8I8I8I8I8I8I1I4I6I6I6I6I4xx', 2, c.revision, c.sequence,
c.acked, c.cancelled, c.purged, c.relayed, c.expired, c.replaced, c.paused, c.uses,
c.finished_since, c.journal_since, c.armed, c.armed_until, c.minute))
end
end
end
results[3] = control.revision
return results
