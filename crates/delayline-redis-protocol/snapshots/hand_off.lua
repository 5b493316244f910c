-- delayline 0.1.0, schema 2: hand_off
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
return redis.call('LLEN', KEYS[9]) == 0
end
local counted = false
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
local results, first_due = {0, now, 0}, 281474976710655
local new_finished, new_details, new_places, ended, gone = {}, {}, {}, {}, {}
local new_records, new_updates, removed, replaced_contents = {}, {}, {}, {}
local unsent, reused = {}, {}
local sent_places, sent_contents, sent_records = {}, {}, {}
local new_results, new_ends, old_results = {}, {}, {}
local finished_count, finished_rotates
local snapshot, hourly, minute = false, false, math.floor(now / 60000)
local future = false
local settlements, runs, carried_by = tonumber(ARGV[#ARGV]), ARGV[#ARGV - 1], ARGV[#ARGV - 2]
local carriers = {}
for i = 1, settlements do
if struct.unpack('>I6', carried_by, (i - 1) * 8 + 3) > 0 then
carriers[#carriers + 1] = i
end
end
local messages, before_messages = (#ARGV - 4 - 2 * settlements - #carriers) / 2, 1 + 2 * settlements
local before_results = before_messages + 2 * messages
local stored = redis.call('HMGET', KEYS[4], unpack(ARGV, 2, 1 + settlements))
local known = bit.band(control.uses, 32) ~= 0
and redis.call('HMGET', KEYS[6], unpack(ARGV, 2, 1 + settlements))
local records = messages > 0
and redis.call('HMGET', KEYS[3], unpack(ARGV, before_messages + 1, before_messages + messages))
local past = finished_of(before_messages + 1, before_messages + messages)
do
local count = settlements
do
local others, gone_count = {}, 0
for i = 1, count do
local id, item, entry = ARGV[1 + i], ARGV[1 + count + i], stored[i]
local is_ack = #item == 24
local lease = is_ack and item or sub(item, 1, 24)
local state = entry and #entry >= 66 and sub(entry, 4, 27) == lease
and byte(entry, 1)
if (state == 2 or is_ack and state == 1) and not (known and known[i]) then
local status = '\6'
if is_ack then
status, results[3 + i], control.acked = '\5', 5, control.acked + 1
else
results[3 + i], control.cancelled = 6, control.cancelled + 1
end
gone_count = gone_count + 1
gone[gone_count], ended[gone_count] = id, sub(entry, 28, 35) .. id
new_finished[2 * gone_count - 1] = id
new_finished[2 * gone_count] = status .. sub(entry, 36, 43) .. lease
else
others[#others + 1] = i
end
end
if #others > 0 then
do
local function after(delay)
return math.min(now + delay, 253402300799999)
end
local function push(list, first, second)
local n = #list
list[n + 1], list[n + 2] = first, second
end
local function due_score(level, due)
control.uses = bit.bor(control.uses, 2 ^ level)
return format('%d', level * 281474976710656 + due)
end
local function dead_score()
return format('%d', 5 * 281474976710656 + now)
end
local function tally(counter, times)
counted = counted or {}
counted[counter] = (counted[counter] or 0) + times
end
local function bury(reason)
if reason == 4 then
control.expired = control.expired + 1
else
local died = {
[1] = 21, [2] = 22,
[3] = 23, [5] = 24,
}
tally(died[reason], 1)
end
return dead_score()
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
local function fresh_details(sequence, fixed)
return {
state = 0, settled = 0, reason = 0, lease = '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0', sequence = sequence, fixed = fixed,
due = 0, failures = 0, crashes = 0, first_error = '', last_error = '',
}
end
local function write_details(d)
return struct.pack('>I1I1I1c24c8c13I6I2I2I2xxxxxx', d.state, d.settled, d.reason, d.lease, d.sequence, d.fixed, d.due,
d.failures, d.crashes, #d.first_error) .. d.first_error .. d.last_error
end
local function note_error(d, text)
if text ~= '' then
if d.first_error == '' then
d.first_error = text
end
d.last_error = text
end
end
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
local function take_over(id, member, status, lease, settled, update)
local counter = status == 5 and 'acked' or status == 6 and 'cancelled' or 'replaced'
control[counter], control.sequence = control[counter] + 1, control.sequence + 1
local sequence = struct.pack('>I8', control.sequence)
local due = math.max(now, (struct.unpack('>I6', update, 41)))
local d = fresh_details(sequence, sub(update, 58, 65) .. sub(update, 47, 51))
d.lease, d.settled, d.due = lease, settled, due
push(new_details, id, write_details(d))
push(new_places, due_score(byte(update, 47), due), sequence .. id)
push(new_records, id, sequence .. sub(update, 52))
push(new_updates, id, sub(update, 1, 32))
if member ~= sequence .. id then
removed[#removed + 1] = member
end
if bit.band(control.uses, 16) ~= 0 then
replaced_contents[#replaced_contents + 1] = id
end
return due
end
local function has_follower(update, sequence)
return update and #update >= 66 and sub(update, 33, 40) == sequence
and byte(update, 47) <= 3
and struct.unpack('>I6', update, 41) <= 253402300799999
end
local function settle_without_details(i, lease, kind)
if redis.call('HEXISTS', KEYS[3], ARGV[1 + i]) == 1 then
return -2
end
local past = finished_of(1 + i, 1 + i)[1]
if past and lease ~= '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0' and sub(past, 10, 33) == lease
and (kind == 0) == (byte(past, 1) == 5) then
return -10 - byte(past, 1)
end
return -3
end
local function give_back(id, entry, item, kind)
local d = read_details(entry)
d.settled, d.state, d.reason = kind, 0, 0
local delay, text = struct.unpack('>I6', item, 26), sub(item, 32)
if kind == 2 then
d.due = after(delay)
tally(17, 1)
elseif kind == 3 then
tally(18, 1)
elseif kind == 1 then
d.failures = d.failures + 1
tally(16, 1)
note_error(d, text)
if d.failures >= d.max_failures then
d.reason = 1
else
d.due = after(delay)
end
elseif kind == 4 then
note_error(d, text)
d.reason = 3
end
push(new_details, id, write_details(d))
if d.reason ~= 0 then
push(new_places, bury(d.reason), d.sequence .. id)
return 4
end
push(new_places, due_score(d.level, d.due), d.sequence .. id)
first_due = math.min(first_due, d.due)
return d.due > now and 1 or 2
end
local function end_lease(id, entry, item, kind, update)
local status = kind == 0 and 5 or byte(entry, 1) == 2 and 6
local lease, member = sub(item, 1, 24), sub(entry, 28, 35) .. id
if has_follower(update, sub(entry, 28, 35)) then
if not status then
status = 9
local counter = kind == 1 and 16 or kind == 2 and 17
or kind == 3 and 18
if counter then
tally(counter, 1)
end
end
local due = take_over(id, member, status, lease, kind + 16 * status, update)
first_due = math.min(first_due, due)
elseif status then
finish(id, sub(entry, 36, 43), status, lease, update)
ended[#gone] = member
else
status = give_back(id, entry, item, kind)
end
return status
end
for _, i in ipairs(others) do
local entry, item, status = stored[i], ARGV[1 + count + i], -2
local lease, kind = sub(item, 1, 24), byte(item, 25) or 0
if not entry then
status = settle_without_details(i, lease, kind)
elseif readable_details(entry) and sub(entry, 4, 27) == lease then
local settled = byte(entry, 2)
if byte(entry, 1) ~= 0 then
status = end_lease(ARGV[1 + i], entry, item, kind, known and known[i])
elseif settled > 0 and kind == settled % 16 then
local reason, before = byte(entry, 3), math.floor(settled / 16)
local died = reason == 1 or reason == 3
status = before > 0 and -10 - before
or died and -10 - 4 or -1
end
end
results[3 + i] = status
end
end
end
end
end
if #carriers > 0 then
do
local function after(delay)
return math.min(now + delay, 253402300799999)
end
local function push(list, first, second)
local n = #list
list[n + 1], list[n + 2] = first, second
end
local function result_bytes(id)
return math.max(0, redis.call('HSTRLEN', KEYS[12], id) - 30)
end
local function result_of(id)
local value = redis.call('HGET', KEYS[12], id)
return value and #value >= 30 and struct.unpack('>I6', value, 1) > now and value
end
local function trim_results(going, most)
local bytes = 0
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[13], '0', format('%d', now), 'LIMIT', '0', most)) do
going[id], bytes = true, bytes + result_bytes(id)
end
return bytes
end
local new, going = 0, {}
for _, i in ipairs(carriers) do
new = new + (results[3 + i] > 0 and 1 or 0)
end
local bytes = tonumber(redis.call('HGET', KEYS[12], '') or 0)
if not bytes or not (bytes >= 0 and bytes < 9007199254740992) then
bytes = 0
end
if new > 0 then
bytes = bytes - trim_results(going, 2 * new)
end
for n, i in ipairs(carriers) do
local id, result, lease = ARGV[1 + i], ARGV[before_results + n], sub(ARGV[1 + settlements + i], 1, 24)
local is_kept
if results[3 + i] > 0 then
local change = #result - (going[id] and 0 or result_bytes(id))
is_kept = bytes + change <= 67108864
if is_kept then
local retention = struct.unpack('>I6', carried_by, (i - 1) * 8 + 3)
local ends = after(retention)
bytes, going[id] = bytes + change, nil
push(new_results, id, struct.pack('>I6', ends) .. lease .. result)
push(new_ends, format('%d', ends), id)
end
elseif results[3 + i] ~= -2 and results[3 + i] ~= -3 then
local known = result_of(id)
is_kept = known and sub(known, 7, 30) == lease
end
results[3 + settlements + messages + n] = is_kept and 1 or 0
end
for id in pairs(going) do
old_results[#old_results + 1] = id
end
if #new_results > 0 or #old_results > 0 then
push(new_results, '', format('%d', math.max(0, bytes)))
end
end
end
do
local last = 0
for settlement = 1, settlements do
local follow = struct.unpack('>I2', carried_by, (settlement - 1) * 8 + 1)
if results[3 + settlement] <= 0 then
for i = last + 1, last + follow do
unsent[i] = true
end
end
last = last + follow
end
end
do
local count, before_ids, before_results, last = messages, before_messages, 3 + settlements, 0
local new_places, new_contents, new_records = sent_places, sent_contents, sent_records
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
if unsent[i] then
status, known_digest = 0, nil
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
end
if #sent_contents > 0 then
control.uses = bit.bor(control.uses, 16)
end
local ring = first_due < 281474976710655 and rings(first_due)
if #gone > 0 or #new_places > 0 then
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
.. redis.call('GETRANGE', KEYS[10], '0', format('%d', 200 - 1))
end
local function fields_between(list, letter, slots, first, last)
for number = first + 1, math.min(last, first + slots) do
list[#list + 1] = letter .. format('%d', number % slots)
end
end
redis.call('HLEN', KEYS[11])
if redis.acl_check_cmd and not (redis.acl_check_cmd('HSET', KEYS[11], KEYS[11], KEYS[11]) and redis.acl_check_cmd('PEXPIRE', KEYS[11], KEYS[11]) and redis.acl_check_cmd('HDEL', KEYS[11], KEYS[11])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
local hour, latest_hour = math.floor(minute / 60), math.floor(control.minute / 60)
snapshot = point(minute * 60000)
hourly = hour ~= latest_hour and point(hour * 3600000)
if minute < control.minute then
local fields = {}
future = {}
fields_between(fields, 'm', 360, minute, control.minute)
fields_between(fields, 'h', 744, hour, latest_hour)
for i, value in ipairs(redis.call('HMGET', KEYS[11], unpack(fields))) do
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
if redis.acl_check_cmd and not (redis.acl_check_cmd('HDEL', KEYS[3], KEYS[3]) and redis.acl_check_cmd('HDEL', KEYS[4], KEYS[4])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
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
if #new_places > 0 then
redis.call('ZCARD', KEYS[2])
if redis.acl_check_cmd and not (redis.acl_check_cmd('ZADD', KEYS[2], KEYS[2], KEYS[2])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
end
if #new_records > 0 then
if redis.acl_check_cmd and not (redis.acl_check_cmd('HSET', KEYS[3], KEYS[3], KEYS[3])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
end
if #new_updates > 0 then
redis.call('HLEN', KEYS[6])
if redis.acl_check_cmd and not (redis.acl_check_cmd('HSET', KEYS[6], KEYS[6], KEYS[6])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
end
if #replaced_contents > 0 then
redis.call('HLEN', KEYS[5])
if redis.acl_check_cmd and not (redis.acl_check_cmd('HDEL', KEYS[5], KEYS[5])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
end
if #reused > 0 then
redis.call('HLEN', KEYS[7])
redis.call('HLEN', KEYS[8])
if redis.acl_check_cmd and not (redis.acl_check_cmd('HDEL', KEYS[7], KEYS[7]) and redis.acl_check_cmd('HDEL', KEYS[8], KEYS[8])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
end
if #removed > 0 then
redis.call('ZCARD', KEYS[2])
if redis.acl_check_cmd and not (redis.acl_check_cmd('ZREM', KEYS[2], KEYS[2])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
end
if #ended > 0 then
redis.call('ZCARD', KEYS[2])
if redis.acl_check_cmd and not (redis.acl_check_cmd('ZREM', KEYS[2], KEYS[2]) and redis.acl_check_cmd('HGET', KEYS[3], KEYS[3])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
end
if ring then
if redis.acl_check_cmd and not (redis.acl_check_cmd('LPUSH', KEYS[9], KEYS[9])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
end
end
if #sent_places > 0 then
redis.call('ZCARD', KEYS[2])
if redis.acl_check_cmd and not (redis.acl_check_cmd('ZADD', KEYS[2], KEYS[2], KEYS[2]) and redis.acl_check_cmd('HSET', KEYS[3], KEYS[3], KEYS[3])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
end
if #sent_contents > 0 then
redis.call('HLEN', KEYS[5])
if redis.acl_check_cmd and not (redis.acl_check_cmd('HSET', KEYS[5], KEYS[5], KEYS[5])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
end
if #new_results > 0 then
if redis.acl_check_cmd and not (redis.acl_check_cmd('HSET', KEYS[12], KEYS[12], KEYS[12]) and redis.acl_check_cmd('ZADD', KEYS[13], KEYS[13], KEYS[13]) and redis.acl_check_cmd('HDEL', KEYS[12], KEYS[12]) and redis.acl_check_cmd('ZREM', KEYS[13], KEYS[13])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
if redis.acl_check_cmd and not (redis.acl_check_cmd('PEXPIRE', KEYS[12], KEYS[12]) and redis.acl_check_cmd('PEXPIRE', KEYS[13], KEYS[13])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
end
redis.call('BITFIELD', KEYS[10])
do
if control.stored and control.uses ~= control.known_uses then
if redis.acl_check_cmd and not (redis.acl_check_cmd('ZADD', KEYS[2], KEYS[2], KEYS[2])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
redis.call('SET', KEYS[1], sub(control.stored, 1, 67 - 1)
.. struct.pack('>I4', control.uses) .. sub(control.stored, 71))
end
end
if #new_results > 0 then
do
if #new_ends > 0 then
redis.call('ZADD', KEYS[13], unpack(new_ends))
end
redis.call('HSET', KEYS[12], unpack(new_results))
if #old_results > 0 then
redis.call('HDEL', KEYS[12], unpack(old_results))
redis.call('ZREM', KEYS[13], unpack(old_results))
end
redis.call('PEXPIRE', KEYS[12], 604800000)
redis.call('PEXPIRE', KEYS[13], 604800000)
end
end
if #sent_places > 0 then
redis.call('ZADD', KEYS[2], unpack(sent_places))
if #sent_contents > 0 then
redis.call('HSET', KEYS[5], unpack(sent_contents))
end
redis.call('HSET', KEYS[3], unpack(sent_records))
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
redis.call('BITFIELD', KEYS[10], unpack(increments))
counted = false
end
end
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
if #new_places > 0 then
redis.call('ZADD', KEYS[2], unpack(new_places))
end
if #new_records > 0 then
redis.call('HSET', KEYS[3], unpack(new_records))
end
if #new_updates > 0 then
redis.call('HSET', KEYS[6], unpack(new_updates))
end
if #replaced_contents > 0 then
redis.call('HDEL', KEYS[5], unpack(replaced_contents))
end
if #reused > 0 then
redis.call('HDEL', KEYS[7], unpack(reused))
redis.call('HDEL', KEYS[8], unpack(reused))
end
if #removed > 0 then
redis.call('ZREM', KEYS[2], unpack(removed))
end
do
if #ended > 0 and redis.call('ZREM', KEYS[2], unpack(ended)) < #ended then
do
for n = #gone, 1, -1 do
local record = redis.call('HGET', KEYS[3], gone[n])
if record and sub(record, 1, 8) ~= sub(ended[n], 1, 8) then
redis.call('HDEL', KEYS[4], gone[n])
table.remove(gone, n)
end
end
end
end
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
redis.call('HDEL', KEYS[11], unpack(future))
end
redis.call('HSET', KEYS[11], format('m%d', minute % 360), snapshot)
if hourly then
redis.call('HSET', KEYS[11], format('h%d', math.floor(minute / 60) % 744), hourly)
end
redis.call('PEXPIRE', KEYS[11], 2678400000)
control.minute, snapshot, future = minute, false, false
end
end
if ring then
redis.call('LPUSH', KEYS[9], '1')
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
