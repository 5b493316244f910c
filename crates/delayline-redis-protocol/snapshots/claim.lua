-- delayline 0.1.0, schema 2: claim
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
local counted = false
local seen = {}
local consumer, claim_id, max = ARGV[2], ARGV[3], tonumber(ARGV[4])
local deadline = after(tonumber(ARGV[5]))
local results, before_claim = {0, now, 0, 0, -1}, 3
local new_details, new_places, new_records, removed = {}, {}, {}, {}
local delivered, deaths, changed = 0, {}, false
local journaled, ring = false, false
local first_left
local journal_age = now - control.journal_since
local younger, last_claim
local journal_count, journal_rotates
local function first_end_of_lease(but)
local first =
redis.call('ZRANGEBYSCORE', KEYS[2], '1125899906842624', '1379302207642623', 'WITHSCORES', 'LIMIT', but, '1')[2]
return first and tonumber(first) - 4 * 281474976710656
end
local finished_count, finished_rotates
local snapshot, hourly, minute = false, false, math.floor(now / 60000)
local future = false
do
younger = redis.call('HGET', KEYS[9], consumer)
last_claim = journal_age < 2 * 600000 and younger
if not last_claim and journal_age < 600000 then
last_claim = redis.call('HGET', KEYS[10], consumer)
end
end
local is_repeated = last_claim and sub(last_claim, 1, 16) == claim_id
local lease_end = first_end_of_lease('0')
local next, hands_on, is_news
do
local function ready_messages(wanted)
local ids, members, due, count, first_left = {}, {}, {}, 0, 281474976710655
local levels, due_of = control.uses, {}
for level = 0, 3 do
local is_used = levels % 2
levels = (levels - is_used) / 2
if is_used == 1 then
local base, room, before = level * 281474976710656, wanted - count, seen[level] or 0
local last = format('%d', base + (room > 0 and now or 253402300799999))
local found = redis.call('ZRANGEBYSCORE', KEYS[2], format('%d', base), last,
'WITHSCORES', 'LIMIT', format('%d', before), format('%d', room + 1))
seen[level] = before + math.min(#found / 2, room)
for i = 1, math.min(#found, 2 * room), 2 do
count = count + 1
members[count], ids[count] = found[i], sub(found[i], 9)
local score = found[i + 1]
due_of[score] = due_of[score] or tonumber(score) - base
due[count] = due_of[score]
end
local left = found[2 * room + 2]
if not left and room > 0 then
left = redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. last,
format('%d', base + 253402300799999), 'WITHSCORES', 'LIMIT', '0', '1')[2]
end
if left then
first_left = math.min(first_left, tonumber(left) - base)
end
end
end
return ids, members, due, first_left
end
if is_repeated then
do
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
local count = #last_claim >= 18 and struct.unpack('>I2', last_claim, 17) or 0
local position = 19 + count
if position > #last_claim then
count = 0
end
for i = 1, count do
local length = byte(last_claim, 19 - 1 + i)
local id = sub(last_claim, position, position + length - 1)
position = position + length
local entry, record = redis.call('HGET', KEYS[4], id), false
if entry and readable_details(entry) and sub(entry, 12, 27) == claim_id
and byte(entry, 1) ~= 0 then
record = redis.call('HGET', KEYS[3], id)
end
local content = read_record(record)
if content then
local band, its_deadline = place_of(member_of(record, id))
local whole = band == 4 and its_deadline > now and whole_record(id, record, content)
if whole then
local n = #results
results[n + 1], results[n + 2] = id, whole
results[n + 3] = struct.pack('>I6', its_deadline) .. entry
delivered = delivered + 1
end
end
end
end
if control.paused == 0 then
local _
_, _, _, first_left = ready_messages(0)
end
else
if lease_end and lease_end <= now then
do
local members, ids, stored, known
do
local last = format('%d', 4 * 281474976710656 + now)
members =
redis.call('ZRANGEBYSCORE', KEYS[2], '1125899906842624', last, 'LIMIT', '0', format('%d', 500))
ids = {}
for i, member in ipairs(members) do
ids[i] = sub(member, 9)
end
stored = redis.call('HMGET', KEYS[4], unpack(ids))
known = bit.band(control.uses, 32) ~= 0 and redis.call('HMGET', KEYS[6], unpack(ids)) or {}
end
do
redis.call('LLEN', KEYS[11])
redis.call('STRLEN', KEYS[12])
if bit.band(control.uses, 16) ~= 0 then
redis.call('HLEN', KEYS[5])
end
end
local new_finished, new_details, new_places, new_records = {}, {}, {}, {}
local removed, gone, first_back = {}, {}, 281474976710655
local new_updates, replaced_contents = {}, {}
do
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
local function member_of(record, id)
return sub(record, 1, 8) .. id
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
local function fixed_of(record, limits)
return sub(record, 15, 22) .. string.char(level_of(record)) .. limits
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
local function finished_as(id)
return redis.call('HGET', KEYS[7], id) or redis.call('HGET', KEYS[8], id)
end
local function is_id(id)
return #id >= 1 and #id <= 128
end
local function is_stray(id, member, record)
if not is_id(id) or not record and finished_as(id) then
return true
end
local other = record and member_of(record, id)
return other and other ~= member and redis.call('ZSCORE', KEYS[2], other)
end
local function remains(member, record, due)
local stub = false
local position, limits = read_record(record)
if not position or sub(record, 1, 8) ~= sub(member, 1, 8)
or not whole_record(sub(member, 9), record, position) then
limits = '\0\1\0\1'
stub = sub(member, 1, 8) .. struct.pack('>I6', now) .. '\0\0\0\0\0\0\0\0'
.. string.char(2 + 4) .. limits .. sub(record or '', 1, 4096)
end
local d = fresh_details(sub(member, 1, 8), fixed_of(stub or record, limits))
d.due, d.reason = due, 5
return write_details(d), stub
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
for i, member in ipairs(members) do
local id, entry = ids[i], stored[i]
if not (entry and readable_details(entry) and sub(entry, 28, 35) == sub(member, 1, 8)) then
local record = redis.call('HGET', KEYS[3], id)
if is_stray(id, member, record) then
removed[#removed + 1] = member
elseif has_follower(known[i], sub(member, 1, 8)) then
local lease, settled = '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0', 0
if entry and readable_details(entry) then
lease, settled = sub(entry, 4, 27), byte(entry, 2)
end
local status = settled < 16 and 9 or math.floor(settled / 16)
first_back = math.min(first_back, take_over(id, member, status, lease, settled, known[i]))
else
local left, stub = remains(member, record, now)
push(new_details, id, left)
push(new_places, bury(5), member)
push(deaths, 5, id)
if stub then
push(new_records, id, stub)
end
end
elseif has_follower(known[i], sub(member, 1, 8)) then
local status = byte(entry, 1) == 2 and 6 or 9
local lease = sub(entry, 4, 27)
if status == 9 then
tally(19, 1)
end
first_back = math.min(first_back, take_over(id, member, status, lease, 0, known[i]))
elseif byte(entry, 1) == 2 then
finish(id, sub(entry, 36, 43), 6, '', known[i])
removed[#removed + 1] = member
else
local d = read_details(entry)
local was_open = d.state == 1
if was_open then
d.crashes, d.settled, d.state = d.crashes + 1, 0, 0
tally(19, 1)
d.reason = d.crashes >= d.max_crashes and 2 or 0
push(new_details, id, write_details(d))
end
if d.reason ~= 0 then
push(new_places, was_open and bury(d.reason) or dead_score(), member)
push(deaths, d.reason, id)
else
push(new_places, due_score(d.level, d.due), member)
first_back = math.min(first_back, d.due)
end
end
end
end
do
if minute ~= control.minute then
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
.. redis.call('GETRANGE', KEYS[12], '0', format('%d', 200 - 1))
end
local function fields_between(list, letter, slots, first, last)
for number = first + 1, math.min(last, first + slots) do
list[#list + 1] = letter .. format('%d', number % slots)
end
end
redis.call('HLEN', KEYS[13])
if redis.acl_check_cmd and not (redis.acl_check_cmd('HSET', KEYS[13], KEYS[13], KEYS[13]) and redis.acl_check_cmd('PEXPIRE', KEYS[13], KEYS[13]) and redis.acl_check_cmd('HDEL', KEYS[13], KEYS[13])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
local hour, latest_hour = math.floor(minute / 60), math.floor(control.minute / 60)
snapshot = point(minute * 60000)
hourly = hour ~= latest_hour and point(hour * 3600000)
if minute < control.minute then
local fields = {}
future = {}
fields_between(fields, 'm', 360, minute, control.minute)
fields_between(fields, 'h', 744, hour, latest_hour)
for i, value in ipairs(redis.call('HMGET', KEYS[13], unpack(fields))) do
if value and (#value < 94 or struct.unpack('>I6', value, 1) > now) then
future[#future + 1] = fields[i]
end
end
end
end
end
if redis.acl_check_cmd and not (redis.acl_check_cmd('BITFIELD', KEYS[12], KEYS[12]) and redis.acl_check_cmd('GET', KEYS[1]) and redis.acl_check_cmd('GETRANGE', KEYS[12], KEYS[12], KEYS[12]) and redis.acl_check_cmd('HDEL', KEYS[5], KEYS[5]) and redis.acl_check_cmd('HDEL', KEYS[4], KEYS[4]) and redis.acl_check_cmd('HDEL', KEYS[13], KEYS[13]) and redis.acl_check_cmd('HDEL', KEYS[3], KEYS[3]) and redis.acl_check_cmd('HDEL', KEYS[6], KEYS[6]) and redis.acl_check_cmd('HGET', KEYS[5], KEYS[5]) and redis.acl_check_cmd('HGET', KEYS[4], KEYS[4]) and redis.acl_check_cmd('HGET', KEYS[7], KEYS[7]) and redis.acl_check_cmd('HGET', KEYS[8], KEYS[8]) and redis.acl_check_cmd('HGET', KEYS[9], KEYS[9]) and redis.acl_check_cmd('HGET', KEYS[10], KEYS[10]) and redis.acl_check_cmd('HGET', KEYS[3], KEYS[3]) and redis.acl_check_cmd('HLEN', KEYS[5]) and redis.acl_check_cmd('HLEN', KEYS[7]) and redis.acl_check_cmd('HLEN', KEYS[13]) and redis.acl_check_cmd('HLEN', KEYS[9]) and redis.acl_check_cmd('HMGET', KEYS[4], KEYS[4]) and redis.acl_check_cmd('HMGET', KEYS[13], KEYS[13]) and redis.acl_check_cmd('HMGET', KEYS[3], KEYS[3]) and redis.acl_check_cmd('HMGET', KEYS[6], KEYS[6]) and redis.acl_check_cmd('HSET', KEYS[4], KEYS[4], KEYS[4]) and redis.acl_check_cmd('HSET', KEYS[7], KEYS[7], KEYS[7]) and redis.acl_check_cmd('HSET', KEYS[13], KEYS[13], KEYS[13]) and redis.acl_check_cmd('HSET', KEYS[9], KEYS[9], KEYS[9]) and redis.acl_check_cmd('HSET', KEYS[3], KEYS[3], KEYS[3]) and redis.acl_check_cmd('HSET', KEYS[6], KEYS[6], KEYS[6]) and redis.acl_check_cmd('LLEN', KEYS[11]) and redis.acl_check_cmd('LPUSH', KEYS[11], KEYS[11]) and redis.acl_check_cmd('PEXPIRE', KEYS[7], KEYS[7]) and redis.acl_check_cmd('PEXPIRE', KEYS[8], KEYS[8]) and redis.acl_check_cmd('PEXPIRE', KEYS[13], KEYS[13]) and redis.acl_check_cmd('PEXPIRE', KEYS[9], KEYS[9]) and redis.acl_check_cmd('PEXPIRE', KEYS[10], KEYS[10]) and redis.acl_check_cmd('RENAME', KEYS[7], KEYS[7]) and redis.acl_check_cmd('RENAME', KEYS[8], KEYS[8]) and redis.acl_check_cmd('RENAME', KEYS[9], KEYS[9]) and redis.acl_check_cmd('RENAME', KEYS[10], KEYS[10]) and redis.acl_check_cmd('SET', KEYS[1], KEYS[1]) and redis.acl_check_cmd('STRLEN', KEYS[12]) and redis.acl_check_cmd('UNLINK', KEYS[7]) and redis.acl_check_cmd('UNLINK', KEYS[8]) and redis.acl_check_cmd('UNLINK', KEYS[9]) and redis.acl_check_cmd('UNLINK', KEYS[10]) and redis.acl_check_cmd('ZADD', KEYS[2], KEYS[2], KEYS[2]) and redis.acl_check_cmd('ZCARD', KEYS[2]) and redis.acl_check_cmd('ZCOUNT', KEYS[2], KEYS[2], KEYS[2]) and redis.acl_check_cmd('ZRANGEBYSCORE', KEYS[2], KEYS[2], KEYS[2]) and redis.acl_check_cmd('ZREM', KEYS[2], KEYS[2]) and redis.acl_check_cmd('ZSCORE', KEYS[2], KEYS[2])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
do
if redis.acl_check_cmd and not (redis.acl_check_cmd('HSET', KEYS[7], KEYS[7], KEYS[7])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
finished_count = redis.call('HLEN', KEYS[7])
finished_rotates = now - control.finished_since >= 3600000 or finished_count >= 100000
if finished_rotates or finished_count == 0 then
if redis.acl_check_cmd and not (redis.acl_check_cmd('UNLINK', KEYS[7]) and redis.acl_check_cmd('UNLINK', KEYS[8]) and redis.acl_check_cmd('RENAME', KEYS[7], KEYS[7]) and redis.acl_check_cmd('RENAME', KEYS[8], KEYS[8])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
if redis.acl_check_cmd and not (redis.acl_check_cmd('PEXPIRE', KEYS[7], KEYS[7]) and redis.acl_check_cmd('PEXPIRE', KEYS[8], KEYS[8])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
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
redis.call('BITFIELD', KEYS[12], unpack(increments))
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
if journaled then
do
if journal_age >= 2 * 600000 then
redis.call('UNLINK', KEYS[9], KEYS[10])
control.journal_since, journal_count = now, 0
elseif journal_rotates then
redis.call('UNLINK', KEYS[10])
if journal_count > 0 then
redis.call('RENAME', KEYS[9], KEYS[10])
redis.call('PEXPIRE', KEYS[10], 600000)
end
control.journal_since, journal_count = now, 0
end
end
redis.call('HSET', KEYS[9], consumer, journaled)
if journal_count == 0 then
redis.call('PEXPIRE', KEYS[9], 2 * 600000)
end
end
if snapshot then
do
if future and #future > 0 then
redis.call('HDEL', KEYS[13], unpack(future))
end
redis.call('HSET', KEYS[13], format('m%d', minute % 360), snapshot)
if hourly then
redis.call('HSET', KEYS[13], format('h%d', math.floor(minute / 60) % 744), hourly)
end
redis.call('PEXPIRE', KEYS[13], 2678400000)
control.minute, snapshot, future = minute, false, false
end
end
if ring then
redis.call('LPUSH', KEYS[11], '1')
end
end
changed = true
end
lease_end = first_end_of_lease('0')
end
if control.paused == 0 then
do
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
local function fixed_of(record, limits)
return sub(record, 15, 22) .. string.char(level_of(record)) .. limits
end
local leased_score = format('%d', 4 * 281474976710656 + deadline)
local bytes, looked_at, taken, lengths = 0, 0, {}, {}
local first_lease, details_end = '\1\0\0\0\0\0\0\0\0\0\1' .. claim_id, {}
local alike_due, alike = 0, 0
local wanted = max
repeat
local ids, members, due
ids, members, due, first_left = ready_messages(wanted)
local records, stored = {}, {}
if #ids > 0 then
records = redis.call('HMGET', KEYS[3], unpack(ids))
stored = redis.call('HMGET', KEYS[4], unpack(ids))
end
local left_from
for i, id in ipairs(ids) do
if delivered == max or looked_at - delivered == 500 then
left_from = i
break
end
local record, member, entry = records[i], members[i], stored[i]
local sequence, form, content, limits, expires_at, fits, whole
do
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
local function readable_details(details)
return #details >= 66 and byte(details, 44) <= 3
and byte(details, 1) <= 2 and byte(details, 3) <= 5
and struct.unpack('>I6', details, 49) <= 253402300799999
and #details >= 66 + struct.unpack('>I2', details, 59)
end
sequence, form = sub(member, 1, 8), byte(record or '', 23)
content, limits, expires_at = 23 + 1, '\0\20\0\5', 281474976710655
if not form or form >= 4 or byte(record, 9) >= 230 then
content, limits, expires_at = read_record(record)
end
fits = content and #id > 0 and #id <= 128
and sub(record, 1, 8) == sequence
if fits and entry and not (readable_details(entry) and sub(entry, 28, 35) == sequence
and sub(entry, 36, 48) == fixed_of(record, limits)) then
fits = readable_details(entry) and sub(entry, 28, 35) ~= sequence
entry = nil
end
end
if fits and expires_at > now then
local headers, payload = 0, #record - content + 1
if form >= 16 then
headers, payload = content_lengths(record, content)
end
bytes = bytes + headers + payload
if bytes > 4194304 and delivered > 0 then
left_from = i
break
end
whole = form < 32 and record or whole_record(id, record, content)
end
looked_at = looked_at + 1
if whole then
local its_details, due_at, answer = nil, due[i], due[i]
if due_at ~= alike_due then
if alike > 0 then
do
local function tally(counter, times)
counted = counted or {}
counted[counter] = (counted[counter] or 0) + times
end
local late, bucket = now - alike_due, 0
while late >= 2 and bucket < 15 do
late, bucket = late / 2, bucket + 1
end
tally(0 + bucket, alike)
end
end
alike_due, alike = due_at, 0
end
alike = alike + 1
if entry then
local epoch = struct.unpack('>I8', entry, 4) + 1
its_details = '\1\0\0' .. struct.pack('>I8', epoch) .. claim_id .. sub(entry, 28, 48)
.. struct.pack('>I6', due_at) .. sub(entry, 55)
answer = struct.pack('>I6', deadline) .. its_details
else
local rest = details_end[due_at]
if not rest then
rest = struct.pack('>I6', due_at) .. '\0\0\0\0\0\0\0\0\0\0\0\0'
details_end[due_at] = rest
end
if form < 4 then
its_details = first_lease .. sequence .. sub(record, 15, 23)
.. '\0\20\0\5' .. rest
else
its_details = first_lease .. sequence .. fixed_of(record, limits) .. rest
end
end
local n, m = #new_places, #new_details
new_places[n + 1], new_places[n + 2] = leased_score, member
new_details[m + 1], new_details[m + 2] = id, its_details
delivered = delivered + 1
taken[delivered], lengths[delivered] = id, #id
n = before_claim + 3 * delivered
results[n], results[n + 1], results[n + 2] = id, whole, answer
else
do
local function push(list, first, second)
local n = #list
list[n + 1], list[n + 2] = first, second
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
local function member_of(record, id)
return sub(record, 1, 8) .. id
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
local function finished_as(id)
return redis.call('HGET', KEYS[7], id) or redis.call('HGET', KEYS[8], id)
end
local function is_id(id)
return #id >= 1 and #id <= 128
end
local function is_stray(id, member, record)
if not is_id(id) or not record and finished_as(id) then
return true
end
local other = record and member_of(record, id)
return other and other ~= member and redis.call('ZSCORE', KEYS[2], other)
end
local function remains(member, record, due)
local stub = false
local position, limits = read_record(record)
if not position or sub(record, 1, 8) ~= sub(member, 1, 8)
or not whole_record(sub(member, 9), record, position) then
limits = '\0\1\0\1'
stub = sub(member, 1, 8) .. struct.pack('>I6', now) .. '\0\0\0\0\0\0\0\0'
.. string.char(2 + 4) .. limits .. sub(record or '', 1, 4096)
end
local d = fresh_details(sub(member, 1, 8), fixed_of(stub or record, limits))
d.due, d.reason = due, 5
return write_details(d), stub
end
local left, stub, reason
if fits and expires_at <= now then
local d = entry and read_details(entry)
or fresh_details(sub(record, 1, 8), fixed_of(record, limits))
d.state, d.due, d.reason = 0, due[i], 4
left, reason = write_details(d), 4
elseif not is_stray(id, member, record) then
left, stub = remains(member, record, due[i])
reason = 5
end
if left then
push(new_details, id, left)
push(new_places, bury(reason), member)
push(deaths, reason, id)
else
removed[#removed + 1] = member
end
if stub then
push(new_records, id, stub)
end
end
end
end
if left_from then
for left = left_from, #ids do
first_left = math.min(first_left, due[left])
end
end
local buried = looked_at - delivered
local is_over = left_from or #ids < wanted or delivered == max or buried == 500
wanted = math.min(max - delivered + buried, 1000)
until is_over
if alike > 0 then
do
local function tally(counter, times)
counted = counted or {}
counted[counter] = (counted[counter] or 0) + times
end
local late, bucket = now - alike_due, 0
while late >= 2 and bucket < 15 do
late, bucket = late / 2, bucket + 1
end
tally(0 + bucket, alike)
end
end
if delivered > 0 then
journaled = claim_id .. struct.pack('>I2', delivered) .. string.char(unpack(lengths))
.. table.concat(taken)
end
end
if delivered > 0 then
lease_end = math.min(lease_end or 281474976710655, deadline)
end
end
end
local leaving = #new_places / 2 + #removed
do
if first_left then
next = math.min(first_left, lease_end or 281474976710655)
if next == 281474976710655 then
next = nil
if control.uses ~= 63 and redis.call('ZCOUNT', KEYS[2], '0', '1097827230931967') > leaving then
control.uses, changed, next = 63, true, now
end
end
end
end
local more = next and next <= now
results[before_claim + 1], results[before_claim + 2] = more and 1 or 0, next or -1
for i = 1, #deaths do
results[#results + 1] = deaths[i]
end
local sleeps = not more and delivered < max
do
local armed, armed_until = 0, 0
if sleeps then
armed, armed_until = next or 281474976710655, now + 60000
end
hands_on = more or not sleeps and next and next < now + 60000
ring = hands_on and redis.call('LLEN', KEYS[11]) == 0
is_news = armed ~= control.armed or math.abs(armed_until - control.armed_until) > 10000
control.armed, control.armed_until = armed, armed_until
end
changed = changed or #new_places > 0 or #removed > 0
end
if changed or hands_on or is_news then
if changed then
do
if minute ~= control.minute then
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
.. redis.call('GETRANGE', KEYS[12], '0', format('%d', 200 - 1))
end
local function fields_between(list, letter, slots, first, last)
for number = first + 1, math.min(last, first + slots) do
list[#list + 1] = letter .. format('%d', number % slots)
end
end
redis.call('HLEN', KEYS[13])
if redis.acl_check_cmd and not (redis.acl_check_cmd('HSET', KEYS[13], KEYS[13], KEYS[13]) and redis.acl_check_cmd('PEXPIRE', KEYS[13], KEYS[13]) and redis.acl_check_cmd('HDEL', KEYS[13], KEYS[13])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
local hour, latest_hour = math.floor(minute / 60), math.floor(control.minute / 60)
snapshot = point(minute * 60000)
hourly = hour ~= latest_hour and point(hour * 3600000)
if minute < control.minute then
local fields = {}
future = {}
fields_between(fields, 'm', 360, minute, control.minute)
fields_between(fields, 'h', 744, hour, latest_hour)
for i, value in ipairs(redis.call('HMGET', KEYS[13], unpack(fields))) do
if value and (#value < 94 or struct.unpack('>I6', value, 1) > now) then
future[#future + 1] = fields[i]
end
end
end
end
end
end
do
if redis.acl_check_cmd and not (redis.acl_check_cmd('SET', KEYS[1], KEYS[1])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
if #new_details > 0 then
if redis.acl_check_cmd and not (redis.acl_check_cmd('HSET', KEYS[4], KEYS[4], KEYS[4])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
end
if #new_places > 0 then
if redis.acl_check_cmd and not (redis.acl_check_cmd('ZADD', KEYS[2], KEYS[2], KEYS[2])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
end
if #new_records > 0 then
if redis.acl_check_cmd and not (redis.acl_check_cmd('HSET', KEYS[3], KEYS[3], KEYS[3])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
end
if #removed > 0 then
if redis.acl_check_cmd and not (redis.acl_check_cmd('ZREM', KEYS[2], KEYS[2])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
end
if journaled then
do
if redis.acl_check_cmd and not (redis.acl_check_cmd('HSET', KEYS[9], KEYS[9], KEYS[9])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
journal_count = younger and 1 or redis.call('HLEN', KEYS[9])
journal_rotates = journal_age >= 600000 or journal_count >= 1000
if journal_rotates or journal_count == 0 then
if redis.acl_check_cmd and not (redis.acl_check_cmd('UNLINK', KEYS[9]) and redis.acl_check_cmd('UNLINK', KEYS[10]) and redis.acl_check_cmd('RENAME', KEYS[9], KEYS[9]) and redis.acl_check_cmd('RENAME', KEYS[10], KEYS[10])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
if redis.acl_check_cmd and not (redis.acl_check_cmd('PEXPIRE', KEYS[9], KEYS[9]) and redis.acl_check_cmd('PEXPIRE', KEYS[10], KEYS[10])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
end
end
end
if ring then
if redis.acl_check_cmd and not (redis.acl_check_cmd('LPUSH', KEYS[11], KEYS[11])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
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
redis.call('BITFIELD', KEYS[12], unpack(increments))
counted = false
end
end
do
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
if #removed > 0 then
redis.call('ZREM', KEYS[2], unpack(removed))
end
do
end
if journaled then
do
if journal_age >= 2 * 600000 then
redis.call('UNLINK', KEYS[9], KEYS[10])
control.journal_since, journal_count = now, 0
elseif journal_rotates then
redis.call('UNLINK', KEYS[10])
if journal_count > 0 then
redis.call('RENAME', KEYS[9], KEYS[10])
redis.call('PEXPIRE', KEYS[10], 600000)
end
control.journal_since, journal_count = now, 0
end
end
redis.call('HSET', KEYS[9], consumer, journaled)
if journal_count == 0 then
redis.call('PEXPIRE', KEYS[9], 2 * 600000)
end
end
if snapshot then
do
if future and #future > 0 then
redis.call('HDEL', KEYS[13], unpack(future))
end
redis.call('HSET', KEYS[13], format('m%d', minute % 360), snapshot)
if hourly then
redis.call('HSET', KEYS[13], format('h%d', math.floor(minute / 60) % 744), hourly)
end
redis.call('PEXPIRE', KEYS[13], 2678400000)
control.minute, snapshot, future = minute, false, false
end
end
if ring then
redis.call('LPUSH', KEYS[11], '1')
end
end
if changed then
do
control.revision = control.revision + 1
do
local c = control
redis.call('SET', KEYS[1], struct.pack('>I1I8I8I8I8I8I8I8I8I1I4I6I6I6I6I4xx', 2, c.revision, c.sequence,
c.acked, c.cancelled, c.purged, c.relayed, c.expired, c.replaced, c.paused, c.uses,
c.finished_since, c.journal_since, c.armed, c.armed_until, c.minute))
end
end
else
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
