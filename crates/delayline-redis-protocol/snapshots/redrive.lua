-- delayline 0.1.0, schema 2: redrive
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
local function rings(due)
local sleepers_know = control.armed_until > now and control.armed <= due
if sleepers_know or due >= now + 60000 or control.paused ~= 0 then
return false
end
control.armed, control.armed_until = due, now + 60000
return redis.call('LLEN', KEYS[6]) == 0
end
local function instant(argument, position)
local relative, ms = struct.unpack('>I1I6', argument, position)
if relative == 1 then
return after(ms)
end
return ms
end
local function due_score(level, due)
control.uses = bit.bor(control.uses, 2 ^ level)
return format('%d', level * 281474976710656 + due)
end
local counted = false
local function tally(counter, times)
counted = counted or {}
counted[counter] = (counted[counter] or 0) + times
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
local function read_details(details)
local d, n = {}, 0
d.state, d.settled, d.reason, d.lease, d.sequence, d.fixed, d.due, d.failures, d.crashes, n =
struct.unpack('>I1I1I1c24c8c13I6I2I2I2xxxxxx', details)
d.first_error = sub(details, 66 + 1, 66 + n)
d.last_error = sub(details, 66 + n + 1)
d.level, d.max_failures, d.max_crashes = struct.unpack('>I1I2I2', d.fixed, 9)
return d
end
local function write_details(d)
return struct.pack('>I1I1I1c24c8c13I6I2I2I2xxxxxx', d.state, d.settled, d.reason, d.lease, d.sequence, d.fixed, d.due,
d.failures, d.crashes, #d.first_error) .. d.first_error .. d.last_error
end
local snapshot, hourly, minute = false, false, math.floor(now / 60000)
local future = false
local ids, due = {}, instant(ARGV[2], 1)
for i = 3, #ARGV do
ids[i - 2] = ARGV[i]
end
local records = redis.call('HMGET', KEYS[3], unpack(ids))
local stored = redis.call('HMGET', KEYS[4], unpack(ids))
local results = {0, now, 0}
local revived, new_details, new_places = {}, {}, {}
for i, id in ipairs(ids) do
local record, entry = records[i], stored[i]
if not record then
results[3 + i] = -3
elseif place_of(member_of(record, id)) ~= 5 then
results[3 + i] = -1
elseif not (entry and readable_details(entry) and sub(entry, 28, 35) == sub(record, 1, 8))
or digest_of(record) == '\0\0\0\0\0\0\0\0' or not has_content(id, record) then
results[3 + i] = -2
else
local position, _, expires_at = read_record(record)
if expires_at ~= 281474976710655 then
push(revived, id, sub(record, 1, 23 - 1) .. string.char(byte(record, 23) - 8)
.. sub(record, 23 + 1, position - 6 - 1) .. sub(record, position))
end
local d = read_details(entry)
d.state, d.settled, d.reason, d.failures, d.crashes = 0, 0, 0, 0, 0
d.due = due
push(new_details, id, write_details(d))
push(new_places, due_score(d.level, due), member_of(record, id))
tally(20, 1)
results[3 + i] = due
end
end
local ring = #new_places > 0 and rings(due)
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
.. redis.call('GETRANGE', KEYS[7], '0', format('%d', 200 - 1))
end
local function fields_between(list, letter, slots, first, last)
for number = first + 1, math.min(last, first + slots) do
list[#list + 1] = letter .. format('%d', number % slots)
end
end
redis.call('HLEN', KEYS[8])
if redis.acl_check_cmd and not (redis.acl_check_cmd('HSET', KEYS[8], KEYS[8], KEYS[8]) and redis.acl_check_cmd('PEXPIRE', KEYS[8], KEYS[8]) and redis.acl_check_cmd('HDEL', KEYS[8], KEYS[8])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
local hour, latest_hour = math.floor(minute / 60), math.floor(control.minute / 60)
snapshot = point(minute * 60000)
hourly = hour ~= latest_hour and point(hour * 3600000)
if minute < control.minute then
local fields = {}
future = {}
fields_between(fields, 'm', 360, minute, control.minute)
fields_between(fields, 'h', 744, hour, latest_hour)
for i, value in ipairs(redis.call('HMGET', KEYS[8], unpack(fields))) do
if value and (#value < 94 or struct.unpack('>I6', value, 1) > now) then
future[#future + 1] = fields[i]
end
end
end
end
end
do
if redis.acl_check_cmd and not (redis.acl_check_cmd('SET', KEYS[1], KEYS[1])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
if #revived > 0 then
if redis.acl_check_cmd and not (redis.acl_check_cmd('HSET', KEYS[3], KEYS[3], KEYS[3])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
end
if #new_details > 0 then
if redis.acl_check_cmd and not (redis.acl_check_cmd('HSET', KEYS[4], KEYS[4], KEYS[4])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
end
if #new_places > 0 then
if redis.acl_check_cmd and not (redis.acl_check_cmd('ZADD', KEYS[2], KEYS[2], KEYS[2])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
end
if ring then
if redis.acl_check_cmd and not (redis.acl_check_cmd('LPUSH', KEYS[6], KEYS[6])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
end
end
do
redis.call('HDEL', KEYS[3], '')
end
do
if counted then
do
local increments = {}
for counter, times in pairs(counted) do
local n = #increments
increments[n + 1], increments[n + 2] = 'INCRBY', 'i64'
increments[n + 3], increments[n + 4] = format('#%d', counter), format('%d', times)
end
redis.call('BITFIELD', KEYS[7], unpack(increments))
counted = false
end
end
do
end
if #revived > 0 then
redis.call('HSET', KEYS[3], unpack(revived))
end
if #new_details > 0 then
redis.call('HSET', KEYS[4], unpack(new_details))
end
if #new_places > 0 then
redis.call('ZADD', KEYS[2], unpack(new_places))
end
do
end
if snapshot then
do
if future and #future > 0 then
redis.call('HDEL', KEYS[8], unpack(future))
end
redis.call('HSET', KEYS[8], format('m%d', minute % 360), snapshot)
if hourly then
redis.call('HSET', KEYS[8], format('h%d', math.floor(minute / 60) % 744), hourly)
end
redis.call('PEXPIRE', KEYS[8], 2678400000)
control.minute, snapshot, future = minute, false, false
end
end
if ring then
redis.call('LPUSH', KEYS[6], '1')
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
