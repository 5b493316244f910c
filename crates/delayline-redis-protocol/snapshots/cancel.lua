-- delayline 0.1.0, schema 2: cancel
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
local results, new_finished, new_details = {0, now, 0}, {}, {}
local removed, gone, new_updates = {}, {}, {}
local function finish(id, digest, status, lease, update)
local n = #gone
if update and #update >= 32 then
lease = (lease == '' and '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0' or lease) .. sub(update, 1, 32)
end
gone[n + 1] = id
new_finished[2 * n + 1], new_finished[2 * n + 2] = id, string.char(status) .. digest .. lease
local counter = status == 5 and 'acked' or status == 7 and 'purged' or 'cancelled'
control[counter] = control[counter] + 1
end
local finished_count, finished_rotates
local snapshot, hourly, minute = false, false, math.floor(now / 60000)
local future = false
local ids = {}
for i = 2, #ARGV do
ids[i - 1] = ARGV[i]
end
local records = redis.call('HMGET', KEYS[3], unpack(ids))
local stored = redis.call('HMGET', KEYS[4], unpack(ids))
local past = finished_of(2, #ARGV)
local known = bit.band(control.uses, 32) ~= 0
and redis.call('HMGET', KEYS[6], unpack(ids)) or {}
for i, id in ipairs(ids) do
local record, entry = records[i], stored[i]
local state = entry and record and readable_details(entry)
and sub(entry, 28, 35) == sub(record, 1, 8) and byte(entry, 1)
or 0
if not record then
local was_cancelled = past[i] and byte(past[i], 1) == 6
results[3 + i] = was_cancelled and 1 or 3
elseif state ~= 0 and place_of(member_of(record, id)) == 4 then
if state == 1 then
push(new_details, id, string.char(2) .. sub(entry, 1 + 1))
end
if known[i] and #known[i] > 32 then
push(new_updates, id, sub(known[i], 1, 32))
end
results[3 + i] = 2
else
finish(id, digest_of(record), 6, '', known[i])
removed[#gone] = member_of(record, id)
results[3 + i] = 1
end
end
if #new_details > 0 or #new_updates > 0 or #gone > 0 then
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
.. redis.call('GETRANGE', KEYS[9], '0', format('%d', 200 - 1))
end
local function fields_between(list, letter, slots, first, last)
for number = first + 1, math.min(last, first + slots) do
list[#list + 1] = letter .. format('%d', number % slots)
end
end
redis.call('HLEN', KEYS[10])
if redis.acl_check_cmd and not (redis.acl_check_cmd('HSET', KEYS[10], KEYS[10], KEYS[10]) and redis.acl_check_cmd('PEXPIRE', KEYS[10], KEYS[10]) and redis.acl_check_cmd('HDEL', KEYS[10], KEYS[10])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
local hour, latest_hour = math.floor(minute / 60), math.floor(control.minute / 60)
snapshot = point(minute * 60000)
hourly = hour ~= latest_hour and point(hour * 3600000)
if minute < control.minute then
local fields = {}
future = {}
fields_between(fields, 'm', 360, minute, control.minute)
fields_between(fields, 'h', 744, hour, latest_hour)
for i, value in ipairs(redis.call('HMGET', KEYS[10], unpack(fields))) do
if value and (#value < 94 or struct.unpack('>I6', value, 1) > now) then
future[#future + 1] = fields[i]
end
end
end
end
end
do
if redis.acl_check_cmd and not (redis.acl_check_cmd('SET', KEYS[1], KEYS[1])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
if #new_finished > 0 then
do
if redis.acl_check_cmd and not (redis.acl_check_cmd('HSET', KEYS[7], KEYS[7], KEYS[7])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
finished_count = redis.call('HLEN', KEYS[7])
finished_rotates = now - control.finished_since >= 3600000 or finished_count >= 100000
if finished_rotates or finished_count == 0 then
if redis.acl_check_cmd and not (redis.acl_check_cmd('UNLINK', KEYS[7]) and redis.acl_check_cmd('UNLINK', KEYS[8]) and redis.acl_check_cmd('RENAME', KEYS[7], KEYS[7]) and redis.acl_check_cmd('RENAME', KEYS[8], KEYS[8])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
if redis.acl_check_cmd and not (redis.acl_check_cmd('PEXPIRE', KEYS[7], KEYS[7]) and redis.acl_check_cmd('PEXPIRE', KEYS[8], KEYS[8])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
end
end
end
if #gone > 0 then
if redis.acl_check_cmd and not (redis.acl_check_cmd('HDEL', KEYS[4], KEYS[4])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
if bit.band(control.uses, 16) ~= 0 then
redis.call('HLEN', KEYS[5])
if redis.acl_check_cmd and not (redis.acl_check_cmd('HDEL', KEYS[5], KEYS[5])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
end
if bit.band(control.uses, 32) ~= 0 then
redis.call('HLEN', KEYS[6])
if redis.acl_check_cmd and not (redis.acl_check_cmd('HDEL', KEYS[6], KEYS[6])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
end
end
if #new_details > 0 then
if redis.acl_check_cmd and not (redis.acl_check_cmd('HSET', KEYS[4], KEYS[4], KEYS[4])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
end
if #new_updates > 0 then
redis.call('HLEN', KEYS[6])
if redis.acl_check_cmd and not (redis.acl_check_cmd('HSET', KEYS[6], KEYS[6], KEYS[6])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
end
if #removed > 0 then
redis.call('ZCARD', KEYS[2])
if redis.acl_check_cmd and not (redis.acl_check_cmd('ZREM', KEYS[2], KEYS[2])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
end
end
do
redis.call('HDEL', KEYS[3], '')
end
do
do
if #new_finished > 0 then
do
if now - control.finished_since >= 2 * 3600000 then
redis.call('UNLINK', KEYS[7], KEYS[8])
control.finished_since, finished_count = now, 0
elseif finished_rotates then
redis.call('UNLINK', KEYS[8])
if finished_count > 0 then
redis.call('RENAME', KEYS[7], KEYS[8])
redis.call('PEXPIRE', KEYS[8], 3600000)
end
control.finished_since, finished_count = now, 0
end
end
redis.call('HSET', KEYS[7], unpack(new_finished))
if finished_count == 0 then
redis.call('PEXPIRE', KEYS[7], 2 * 3600000)
end
end
end
if #new_details > 0 then
redis.call('HSET', KEYS[4], unpack(new_details))
end
if #new_updates > 0 then
redis.call('HSET', KEYS[6], unpack(new_updates))
end
if #removed > 0 then
redis.call('ZREM', KEYS[2], unpack(removed))
end
do
if #gone > 0 then
redis.call('HDEL', KEYS[3], unpack(gone))
if bit.band(control.uses, 16) ~= 0 then
redis.call('HDEL', KEYS[5], unpack(gone))
end
if bit.band(control.uses, 32) ~= 0 then
redis.call('HDEL', KEYS[6], unpack(gone))
end
redis.call('HDEL', KEYS[4], unpack(gone))
end
end
if snapshot then
do
if future and #future > 0 then
redis.call('HDEL', KEYS[10], unpack(future))
end
redis.call('HSET', KEYS[10], format('m%d', minute % 360), snapshot)
if hourly then
redis.call('HSET', KEYS[10], format('h%d', math.floor(minute / 60) % 744), hourly)
end
redis.call('PEXPIRE', KEYS[10], 2678400000)
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
