-- delayline 0.1.0, schema 2: enqueue
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
local function rings(due)
local sleepers_know = control.armed_until > now and control.armed <= due
if sleepers_know or due >= now + 60000 or control.paused ~= 0 then
return false
end
control.armed, control.armed_until = due, now + 60000
return redis.call('LLEN', KEYS[8]) == 0
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
new = redis.call('HMGET', KEYS[6], unpack(ARGV, first, last))
end
if last >= first and age < 3600000 then
old = redis.call('HMGET', KEYS[7], unpack(ARGV, first, last))
end
local found = {}
for i = 1, last - first + 1 do
found[i] = new[i] and remembered(new[i]) or old[i] and remembered(old[i])
end
return found
end
local snapshot, hourly, minute = false, false, math.floor(now / 60000)
local future = false
local count = (#ARGV - 2) / 2
local records = redis.call('HMGET', KEYS[3], unpack(ARGV, 3, 2 + count))
local past = finished_of(3, 2 + count)
local runs, before_ids, before_results, last = ARGV[2], 2, 3, 0
local results, first_due = {0, now, 0}, 281474976710655
local new_places, new_records, new_contents, reused = {}, {}, {}, {}
local placed, recorded = 0, 0
do
local function after(delay)
return math.min(now + delay, 253402300799999)
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
local pack, char = struct.pack, string.char
local enqueued_at = pack('>I6', now)
local sequence, high = control.sequence, nil
for run = 1, #runs, 11 do
local length, flags, level = struct.unpack('>I2I1I1', runs, run)
local due = instant(runs, run + 5 - 1)
local score, expires = nil, flags >= 2
local first = last + 1
last = last + length
for i = first, last do
local id, item, known_digest, status = ARGV[before_ids + i], ARGV[before_ids + count + i], nil, nil
if records[i] then
do
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
local function is_over(record, past, details)
return past and #record >= 23 and sub(past, 2, 9) == digest_of(record)
and (#past == 9 or sub(past, 10, 33) == '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'
or details and sub(past, 10, 33) == sub(details, 4, 27))
end
local record = records[i]
local band, instant = place_of(member_of(record, id))
if band or not is_over(record, past[i], past[i] and redis.call('HGET', KEYS[4], id)) then
known_digest, status = digest_of(record), 2
if band == 5 then
status = 4
elseif band == 4 then
status = 3
elseif band and instant > now then
status = 1
end
end
end
end
if not status and past[i] then
if flags % 2 == 1 then
reused[#reused + 1] = id
else
known_digest, status = sub(past[i], 2, 9), byte(past[i], 1)
end
end
if status then
local digest = expires and sub(item, 8, 15) or sub(item, 1, 8)
local is_known = status == 0 or known_digest == digest
results[before_results + i] = is_known and -status or -10 - status
else
sequence = sequence + 1
local low = char(sequence % 256)
if low == '\0' or not high then
high = sub(pack('>I8', sequence), 1, 7)
end
score = score or due_score(level, due)
new_places[placed + 1], new_places[placed + 2] = score, high .. low .. id
new_records[recorded + 1] = id
if not expires and byte(item, 9) < 32 then
new_records[recorded + 2] = high .. low .. enqueued_at .. item
else
do
local digest, expires_at = 1, ''
if expires then
digest = 8
expires_at = pack('>I6', instant(item, 1))
end
local form, content = byte(item, digest + 9 - 1), digest + 9
if bit.band(form, 4) ~= 0 then
content = content + 4
end
local record = high .. low .. enqueued_at .. sub(item, digest, content - 1) .. expires_at
if form >= 32 then
local n = #new_contents
new_contents[n + 1], new_contents[n + 2] = id, sub(item, content + 6)
record = record .. sub(item, content, content + 6 - 1)
else
record = record .. sub(item, content)
end
new_records[recorded + 2] = record
end
end
placed, recorded = placed + 2, recorded + 2
if due < first_due then
first_due = due
end
results[before_results + i] = due
end
end
end
control.sequence = sequence
end
if #new_contents > 0 then
control.uses = bit.bor(control.uses, 16)
end
local ring = placed > 0 and rings(first_due)
if placed > 0 then
do
if minute ~= control.minute then
local function after(delay)
return math.min(now + delay, 253402300799999)
end
local function instant(argument, position)
local relative, ms = struct.unpack('>I1I6', argument, position)
if relative == 1 then
return after(ms)
end
return ms
end
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
if #new_places > 0 then
end
if #new_records > 0 then
if redis.acl_check_cmd and not (redis.acl_check_cmd('HSET', KEYS[3], KEYS[3], KEYS[3])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
end
if #new_contents > 0 then
redis.call('HLEN', KEYS[5])
if redis.acl_check_cmd and not (redis.acl_check_cmd('HSET', KEYS[5], KEYS[5], KEYS[5])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
end
if #reused > 0 then
redis.call('HLEN', KEYS[6])
redis.call('HLEN', KEYS[7])
if redis.acl_check_cmd and not (redis.acl_check_cmd('HDEL', KEYS[6], KEYS[6]) and redis.acl_check_cmd('HDEL', KEYS[7], KEYS[7])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
end
if ring then
if redis.acl_check_cmd and not (redis.acl_check_cmd('LPUSH', KEYS[8], KEYS[8])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
end
end
do
if control.stored and control.uses ~= control.known_uses then
redis.call('SET', KEYS[1], sub(control.stored, 1, 67 - 1)
.. struct.pack('>I4', control.uses) .. sub(control.stored, 71))
end
end
do
do
end
if #new_places > 0 then
redis.call('ZADD', KEYS[2], unpack(new_places))
end
if #new_contents > 0 then
redis.call('HSET', KEYS[5], unpack(new_contents))
end
if #new_records > 0 then
redis.call('HSET', KEYS[3], unpack(new_records))
end
if #reused > 0 then
redis.call('HDEL', KEYS[6], unpack(reused))
redis.call('HDEL', KEYS[7], unpack(reused))
end
do
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
if ring then
redis.call('LPUSH', KEYS[8], '1')
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
