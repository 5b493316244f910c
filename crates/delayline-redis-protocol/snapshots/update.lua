-- delayline 0.1.0, schema 2: update
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
local function rings(due)
local sleepers_know = control.armed_until > now and control.armed <= due
if sleepers_know or due >= now + 60000 or control.paused ~= 0 then
return false
end
control.armed, control.armed_until = due, now + 60000
return redis.call('LLEN', KEYS[9]) == 0
end
local function instant(argument, position)
local relative, ms = struct.unpack('>I1I6', argument, position)
if relative == 1 then
return after(ms)
end
return ms
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
local function throttle(id)
local ends = tonumber(redis.call('ZSCORE', KEYS[12], id) or 0)
if ends > now and ends <= 253402300799999 then
return 2251799813685248 + math.floor(ends)
end
end
local new_windows, old_windows = {}, {}
local begun, gone_windows, ended_windows, next_ended, window_count = {}, {}, nil, 1, 0
local snapshot, hourly, minute = false, false, math.floor(now / 60000)
local future = false
local pack = struct.pack
local function is_known(tokens, token)
for from = 1, 32, 8 do
if sub(tokens, from, from + 8 - 1) == token then
return true
end
end
end
local count = (#ARGV - 2) / 2
local records = redis.call('HMGET', KEYS[3], unpack(ARGV, 3, 2 + count))
local stored = redis.call('HMGET', KEYS[6], unpack(ARGV, 3, 2 + count))
local past = {}
for i = 1, count do
if not records[i] then
past = finished_of(3, 2 + count)
break
end
end
local results, first_due, last = {0, now, 0}, 281474976710655, 0
local new_places, new_records, new_contents, new_updates, carried = {}, {}, {}, {}, {}
local reused, removed, replaced_contents = {}, {}, {}
local enqueued_at = pack('>I6', now)
for run = 1, #ARGV[2], 11 do
local length, flags, level = struct.unpack('>I2I1I1', ARGV[2], run)
local due = instant(ARGV[2], run + 5 - 1)
local reuses, expires = flags % 2 == 1, bit.band(flags, 2) ~= 0
local updates, throttles = bit.band(flags, 4) ~= 0, bit.band(flags, 8) ~= 0
local first = last + 1
last = last + length
for i = first, last do
local id, item, record, update = ARGV[2 + i], ARGV[2 + count + i], records[i], stored[i]
local once_per, token, content, moves, at_most, tail, apart
local expires_at = 281474976710655
do
if throttles then
once_per, item = struct.unpack('>I6', item), sub(item, 6 + 1)
end
if updates then
token = sub(item, 1, 8)
content, moves, at_most = struct.unpack('>I1I1I6', item, 9)
item = sub(item, 16 + 1)
end
tail = item
if expires then
expires_at, tail = instant(item, 1), sub(item, 8)
end
local form, position = byte(tail, 9), 9 + 1
if bit.band(form, 4) ~= 0 then
position = position + 4
end
if expires then
tail = sub(tail, 1, position - 1) .. pack('>I6', expires_at) .. sub(tail, position)
position = position + 6
end
if form >= 32 then
apart = sub(tail, position + 6)
tail = sub(tail, 1, position + 6 - 1)
end
end
local status, band, instant_of
if record then
band, instant_of = place_of(member_of(record, id))
if not band then
past[i] = finished_of(2 + i, 2 + i)[1]
end
if band or not is_over(record, past[i], past[i] and redis.call('HGET', KEYS[4], id)) then
status = 2
if band == 5 then
status = 4
elseif band == 4 then
status = 3
elseif band and instant_of > now then
status = 1
end
end
end
local tokens = update and #update >= 32 and sub(update, 1, 32) or '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'
if not status and past[i] then
tokens = #past[i] > 9 + 24 and sub(past[i], -32) or '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'
end
local digest, known_digest = sub(tail, 1, 8), nil
if status then
known_digest = digest_of(record)
elseif past[i] and (not reuses or updates and is_known(tokens, token)) then
known_digest, status, band = sub(past[i], 2, 9), byte(past[i], 1), nil
end
if not status then
do
local function push(list, first, second)
local n = #list
list[n + 1], list[n + 2] = first, second
end
local function begin_window(id, length)
if not ended_windows then
ended_windows = redis.call('ZRANGEBYSCORE', KEYS[12], '-inf', format('%d', now), 'LIMIT', '0', 3 * 1000)
window_count = redis.call('ZCARD', KEYS[12])
end
for _ = 1, 2 do
while begun[ended_windows[next_ended]] do
next_ended = next_ended + 1
end
local oldest = ended_windows[next_ended]
if oldest then
next_ended, window_count, gone_windows[oldest] = next_ended + 1, window_count - 1, true
push(old_windows, oldest)
end
end
if not gone_windows[id] and redis.call('ZSCORE', KEYS[12], id) then
window_count = window_count - 1
end
if window_count >= 100000 then
return false
end
window_count, begun[id] = window_count + 1, true
push(new_windows, format('%d', after(length)), id)
return true
end
local refused = throttles
and (throttle(id) or not begin_window(id, once_per) and -22)
if refused then
results[3 + i] = refused
else
do
local function due_score(level, due)
control.uses = bit.bor(control.uses, 2 ^ level)
return format('%d', level * 281474976710656 + due)
end
local function with_token(tokens, token)
return sub(tokens, 8 + 1) .. token
end
control.sequence = control.sequence + 1
local sequence = pack('>I8', control.sequence)
push(new_places, due_score(level, due), sequence .. id)
push(new_records, id, sequence .. enqueued_at .. tail)
if apart then
push(new_contents, id, apart)
end
if past[i] then
reused[#reused + 1] = id
end
if updates then
push(new_updates, id, with_token(tokens, token))
end
first_due = math.min(first_due, due)
results[3 + i] = due
end
end
end
elseif not updates then
results[3 + i] = known_digest == digest and -status or throttles and throttle(id) or -10 - status
elseif not band or is_known(tokens, token) then
results[3 + i] = -status
elseif band == 4 then
do
local function push(list, first, second)
local n = #list
list[n + 1], list[n + 2] = first, second
end
local function has_follower(update, sequence)
return update and #update >= 66 and sub(update, 33, 40) == sequence
and byte(update, 47) <= 3
and struct.unpack('>I6', update, 41) <= 253402300799999
end
local function with_token(tokens, token)
return sub(tokens, 8 + 1) .. token
end
local function due_after(moves, at_most, due, old_due, enqueued_at)
if moves == 3 then
return math.max(old_due, math.min(due, enqueued_at + at_most, 253402300799999))
end
return moves == 2 and due or old_due
end
local function limits_of(tail, level)
local limits = '\0\20\0\5'
if bit.band(byte(tail, 9), 4) ~= 0 then
limits = sub(tail, 9 + 1, 9 + 4)
end
return string.char(level) .. limits
end
local since, its_due, rest, answer = enqueued_at, due, nil, -20
if has_follower(update, sub(record, 1, 8)) then
answer, since = -21, sub(update, 52, 57)
its_due = due_after(moves, at_most, due, (struct.unpack('>I6', update, 41)),
(struct.unpack('>I6', since)))
rest = content == 0 and sub(update, 47)
end
rest = rest or limits_of(tail, level) .. since .. tail
control.uses = bit.bor(control.uses, 2 ^ level)
push(new_updates, id,
with_token(tokens, token) .. sub(record, 1, 8) .. pack('>I6', its_due) .. rest)
results[3 + i] = answer
end
elseif band == 5 then
local since, its_due = enqueued_at, due
do
local function push(list, first, second)
local n = #list
list[n + 1], list[n + 2] = first, second
end
local function due_score(level, due)
control.uses = bit.bor(control.uses, 2 ^ level)
return format('%d', level * 281474976710656 + due)
end
local function readable_details(details)
return #details >= 66 and byte(details, 44) <= 3
and byte(details, 1) <= 2 and byte(details, 3) <= 5
and struct.unpack('>I6', details, 49) <= 253402300799999
and #details >= 66 + struct.unpack('>I2', details, 59)
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
local function with_token(tokens, token)
return sub(tokens, 8 + 1) .. token
end
local function limits_of(tail, level)
local limits = '\0\20\0\5'
if bit.band(byte(tail, 9), 4) ~= 0 then
limits = sub(tail, 9 + 1, 9 + 4)
end
return string.char(level) .. limits
end
control.sequence, control.replaced = control.sequence + 1, control.replaced + 1
local sequence, entry = pack('>I8', control.sequence), redis.call('HGET', KEYS[4], id)
push(new_places, due_score(level, its_due), sequence .. id)
push(new_records, id, sequence .. since .. tail)
push(new_updates, id, with_token(tokens, token))
if member_of(record, id) ~= sequence .. id then
removed[#removed + 1] = member_of(record, id)
end
if bit.band(control.uses, 16) ~= 0 then
replaced_contents[#replaced_contents + 1] = id
end
if entry then
local d = fresh_details(sequence, sub(tail, 1, 8) .. limits_of(tail, level))
if readable_details(entry) and sub(entry, 28, 35) == sub(record, 1, 8) then
local reason = byte(entry, 3)
d.lease, d.settled = sub(entry, 4, 27), byte(entry, 2)
if d.settled > 0 and d.settled < 16 and (reason == 1 or reason == 3) then
d.settled = d.settled + 16 * 4
end
end
d.due = its_due
push(carried, id, write_details(d))
end
first_due = math.min(first_due, its_due)
results[3 + i] = 1125899906842624 + its_due
end
else
do
local function push(list, first, second)
local n = #list
list[n + 1], list[n + 2] = first, second
end
local function due_score(level, due)
control.uses = bit.bor(control.uses, 2 ^ level)
return format('%d', level * 281474976710656 + due)
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
local function with_token(tokens, token)
return sub(tokens, 8 + 1) .. token
end
local function due_after(moves, at_most, due, old_due, enqueued_at)
if moves == 3 then
return math.max(old_due, math.min(due, enqueued_at + at_most, 253402300799999))
end
return moves == 2 and due or old_due
end
local position, _, its_expiry = read_record(record)
local since, its_due = enqueued_at, due
if position then
since = sub(record, 9, 14)
its_due = due_after(moves, at_most, due, instant_of, (struct.unpack('>I6', since)))
end
local is_same = position and digest_of(record) == sub(tail, 1, 8) and its_expiry == expires_at
if not position or content == 1 and not is_same then
do
local function push(list, first, second)
local n = #list
list[n + 1], list[n + 2] = first, second
end
local function due_score(level, due)
control.uses = bit.bor(control.uses, 2 ^ level)
return format('%d', level * 281474976710656 + due)
end
local function readable_details(details)
return #details >= 66 and byte(details, 44) <= 3
and byte(details, 1) <= 2 and byte(details, 3) <= 5
and struct.unpack('>I6', details, 49) <= 253402300799999
and #details >= 66 + struct.unpack('>I2', details, 59)
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
local function with_token(tokens, token)
return sub(tokens, 8 + 1) .. token
end
local function limits_of(tail, level)
local limits = '\0\20\0\5'
if bit.band(byte(tail, 9), 4) ~= 0 then
limits = sub(tail, 9 + 1, 9 + 4)
end
return string.char(level) .. limits
end
control.sequence, control.replaced = control.sequence + 1, control.replaced + 1
local sequence, entry = pack('>I8', control.sequence), redis.call('HGET', KEYS[4], id)
push(new_places, due_score(level, its_due), sequence .. id)
push(new_records, id, sequence .. since .. tail)
push(new_updates, id, with_token(tokens, token))
if member_of(record, id) ~= sequence .. id then
removed[#removed + 1] = member_of(record, id)
end
if bit.band(control.uses, 16) ~= 0 then
replaced_contents[#replaced_contents + 1] = id
end
if entry then
local d = fresh_details(sequence, sub(tail, 1, 8) .. limits_of(tail, level))
if readable_details(entry) and sub(entry, 28, 35) == sub(record, 1, 8) then
local reason = byte(entry, 3)
d.lease, d.settled = sub(entry, 4, 27), byte(entry, 2)
if d.settled > 0 and d.settled < 16 and (reason == 1 or reason == 3) then
d.settled = d.settled + 16 * 4
end
end
d.due = its_due
push(carried, id, write_details(d))
end
first_due = math.min(first_due, its_due)
results[3 + i] = 1125899906842624 + its_due
end
else
push(new_updates, id, with_token(tokens, token))
results[3 + i] = -status
if its_due ~= instant_of then
push(new_places, due_score(level_of(record), its_due), member_of(record, id))
first_due = math.min(first_due, its_due)
results[3 + i] = 1125899906842624 + its_due
end
end
end
end
end
end
if #new_contents > 0 then
control.uses = bit.bor(control.uses, 16)
end
if #new_updates > 0 then
control.uses = bit.bor(control.uses, 32)
end
local ring = first_due < 281474976710655 and rings(first_due)
if #new_places > 0 or #new_updates > 0 then
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
if #new_places > 0 then
end
if #new_records > 0 then
if redis.acl_check_cmd and not (redis.acl_check_cmd('HSET', KEYS[3], KEYS[3], KEYS[3])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
end
if #new_contents > 0 then
redis.call('HLEN', KEYS[5])
if redis.acl_check_cmd and not (redis.acl_check_cmd('HSET', KEYS[5], KEYS[5], KEYS[5])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
end
if #carried > 0 then
redis.call('HLEN', KEYS[4])
if redis.acl_check_cmd and not (redis.acl_check_cmd('HSET', KEYS[4], KEYS[4], KEYS[4])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
end
if #new_updates > 0 then
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
if redis.acl_check_cmd and not (redis.acl_check_cmd('ZREM', KEYS[2], KEYS[2])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
end
if ring then
if redis.acl_check_cmd and not (redis.acl_check_cmd('LPUSH', KEYS[9], KEYS[9])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
end
end
if #new_windows > 0 then
if redis.acl_check_cmd and not (redis.acl_check_cmd('ZADD', KEYS[12], KEYS[12], KEYS[12]) and redis.acl_check_cmd('ZREM', KEYS[12], KEYS[12]) and redis.acl_check_cmd('PEXPIRE', KEYS[12], KEYS[12])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
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
if #carried > 0 then
redis.call('HSET', KEYS[4], unpack(carried))
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
if #new_windows > 0 then
do
if #old_windows > 0 then
redis.call('ZREM', KEYS[12], unpack(old_windows))
end
redis.call('ZADD', KEYS[12], unpack(new_windows))
redis.call('PEXPIRE', KEYS[12], 2678400000)
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
