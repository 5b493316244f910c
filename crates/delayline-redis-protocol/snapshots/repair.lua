-- delayline 0.1.0, schema 2: repair
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
local new_details, new_places, new_records = {}, {}, {}
local new_updates, removed, replaced_contents = {}, {}, {}
local function push(list, first, second)
local n = #list
list[n + 1], list[n + 2] = first, second
end
local snapshot, hourly, minute = false, false, math.floor(now / 60000)
local future = false
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
local function dead_score()
return format('%d', 5 * 281474976710656 + now)
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
local function level_of(record)
return byte(record, 23) % (3 + 1)
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
local function fixed_of(record, limits)
return sub(record, 15, 22) .. string.char(level_of(record)) .. limits
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
local function count(from, to)
return redis.call('ZCOUNT', KEYS[2], from, to)
end
local function range(first, last)
return redis.call('ZRANGE', KEYS[2], first, last, 'WITHSCORES')
end
local function sequence_of(member)
return struct.unpack('>I4I4', sub(member .. '\0\0\0\0\0\0\0\0', 1, 8))
end
local function position_from(first)
if not ARGV[first] then
return nil
end
return {
index = tonumber(ARGV[first]), instant = tonumber(ARGV[first + 1]),
high = tonumber(ARGV[first + 2]), low = tonumber(ARGV[first + 3]),
}
end
local function rank_after(position)
local score = position.index * 281474976710656 + position.instant
local first, last = count('-inf', format('(%.0f', score)), count('-inf', score)
while first < last do
local middle = math.floor((first + last) / 2)
local high, low = sequence_of(range(middle, middle)[1])
if high > position.high or high == position.high and low > position.low then
last = middle
else
first = middle + 1
end
end
return first
end
local function walk(band, from, to, position, limit)
if limit <= 0 or position and position.index > band then
return {}
end
local first = count('-inf', format('(%.0f', band * 281474976710656 + from))
local last = count('-inf', band * 281474976710656 + to)
if position and position.index == band then
first = math.max(first, rank_after(position))
end
last = math.min(last, first + limit)
if first >= last then
return {}
end
return range(first, last - 1)
end
local results = {0, now, control.revision, 0, 0, 0, 0, 0, 0}
local function find(kind, first, second)
local n = #results
results[n + 1], results[n + 2], results[n + 3] = kind, first, second
end
local function fits(band, details)
local state, reason = 0, 0
if details then
state, reason = byte(details, 1), byte(details, 3)
end
return (band == 4) == (state ~= 0) and (band == 5) == (reason ~= 0)
end
local function examine(band, member)
local id = sub(member, 9)
if #member < 9 or #id > 128 then
return find(1, band, '')
end
local record, details = redis.call('HGET', KEYS[3], id), redis.call('HGET', KEYS[4], id)
local _, limits = read_record(record)
if not has_content(id, record) then
return find(2, id, '')
elseif member_of(record, id) ~= member or band <= 3 and level_of(record) ~= band then
return find(3, id, '')
end
if bit.band(control.uses, 32) ~= 0 then
local update = redis.call('HGET', KEYS[6], id)
local follows = has_follower(update, sub(record, 1, 8))
if follows and band ~= 4 or update and not follows and #update ~= 32 then
return find(7, id, '')
end
end
local readable = not details or readable_details(details)
and sub(details, 28, 35) == sub(record, 1, 8)
and sub(details, 36, 48) == fixed_of(record, limits)
if not readable or not fits(band, details) then
find(4, id, '')
end
end
local function examine_entries(position, limit, wrong)
local examined = 0
for band = 0, 5 do
local entries = walk(band, 0, 253402300799999, position, limit - examined)
for i = 1, #entries, 2 do
local member, before = entries[i], #results
examine(band, member)
if wrong and #results > before then
wrong(member)
end
examined = examined + 1
results[6], results[7] = band, tonumber(entries[i + 1]) - band * 281474976710656
results[8], results[9] = sequence_of(member)
end
end
return examined
end
local function each_gap(found)
found(0, '-inf', '(0')
for band = 0, 5 do
local to = band < 5 and format('(%.0f', (band + 1) * 281474976710656) or '+inf'
found(band, format('(%.0f', band * 281474976710656 + 253402300799999), to)
end
end
local function finished_as(id)
return redis.call('HGET', KEYS[7], id) or redis.call('HGET', KEYS[8], id)
end
local function is_id(id)
return #id >= 1 and #id <= 128
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
local function is_over(record, past, details)
return past and #record >= 23 and sub(past, 2, 9) == digest_of(record)
and (#past == 9 or sub(past, 10, 33) == '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'
or details and sub(past, 10, 33) == sub(details, 4, 27))
end
local function look_for_orphans(number, cursor, found)
if cursor >= 9007199254740992 then
cursor = 0
end
if number == 7 then
local page =
redis.call('HSCAN', KEYS[4], format('%.0f', cursor), 'COUNT', 500)
for i = 1, #page[2], 2 do
if redis.call('HEXISTS', KEYS[3], page[2][i]) == 0 then
found(7, page[2][i])
end
end
if page[1] ~= '0' then
return 7, tonumber(page[1])
end
number, cursor = 9, 0
end
if number == 9 and bit.band(control.uses, 32) ~= 0 then
local page = redis.call('HSCAN', KEYS[6], format('%.0f', cursor), 'COUNT', 100)
for i = 1, #page[2], 2 do
if redis.call('HEXISTS', KEYS[3], page[2][i]) == 0 then
found(9, page[2][i])
end
end
if page[1] ~= '0' then
return 9, tonumber(page[1])
end
end
if redis.call('HLEN', KEYS[5]) <= 500 then
for _, id in ipairs(redis.call('HKEYS', KEYS[5])) do
if redis.call('HEXISTS', KEYS[3], id) == 0 then
found(8, id)
end
end
end
end
local function find_orphan(number, id)
if #id >= 1 and #id <= 128 then
find(7, id, '')
else
find(1, number, '')
end
end
local limit, position = tonumber(ARGV[2]), position_from(3)
local changed = false
redis.call('ZCARD', KEYS[2])
redis.call('HLEN', KEYS[3])
redis.call('HLEN', KEYS[4])
local has_updates = redis.call('HLEN', KEYS[6]) > 0
redis.call('HLEN', KEYS[7])
redis.call('HLEN', KEYS[8])
redis.call('HLEN', KEYS[9])
redis.call('HLEN', KEYS[10])
redis.call('HLEN', KEYS[12])
redis.call('HLEN', KEYS[13])
redis.call('ZCARD', KEYS[14])
redis.call('ZCARD', KEYS[15])
local silent = redis.call('LLEN', KEYS[11]) == 0
local has_contents = redis.call('HLEN', KEYS[5]) > 0
local function touch()
if not changed then
if redis.acl_check_cmd and not (redis.acl_check_cmd('GET', KEYS[1]) and redis.acl_check_cmd('HDEL', KEYS[5], KEYS[5]) and redis.acl_check_cmd('HDEL', KEYS[4], KEYS[4]) and redis.acl_check_cmd('HDEL', KEYS[3], KEYS[3]) and redis.acl_check_cmd('HDEL', KEYS[6], KEYS[6]) and redis.acl_check_cmd('HEXISTS', KEYS[3], KEYS[3]) and redis.acl_check_cmd('HGET', KEYS[5], KEYS[5]) and redis.acl_check_cmd('HGET', KEYS[4], KEYS[4]) and redis.acl_check_cmd('HGET', KEYS[7], KEYS[7]) and redis.acl_check_cmd('HGET', KEYS[8], KEYS[8]) and redis.acl_check_cmd('HGET', KEYS[3], KEYS[3]) and redis.acl_check_cmd('HGET', KEYS[6], KEYS[6]) and redis.acl_check_cmd('HKEYS', KEYS[5]) and redis.acl_check_cmd('HLEN', KEYS[5]) and redis.acl_check_cmd('HLEN', KEYS[4]) and redis.acl_check_cmd('HLEN', KEYS[7]) and redis.acl_check_cmd('HLEN', KEYS[8]) and redis.acl_check_cmd('HLEN', KEYS[12]) and redis.acl_check_cmd('HLEN', KEYS[9]) and redis.acl_check_cmd('HLEN', KEYS[10]) and redis.acl_check_cmd('HLEN', KEYS[3]) and redis.acl_check_cmd('HLEN', KEYS[13]) and redis.acl_check_cmd('HLEN', KEYS[6]) and redis.acl_check_cmd('HSCAN', KEYS[4], KEYS[4]) and redis.acl_check_cmd('HSCAN', KEYS[3], KEYS[3]) and redis.acl_check_cmd('HSCAN', KEYS[6], KEYS[6]) and redis.acl_check_cmd('HSET', KEYS[4], KEYS[4], KEYS[4]) and redis.acl_check_cmd('HSET', KEYS[3], KEYS[3], KEYS[3]) and redis.acl_check_cmd('HSET', KEYS[6], KEYS[6], KEYS[6]) and redis.acl_check_cmd('HSTRLEN', KEYS[5], KEYS[5]) and redis.acl_check_cmd('LLEN', KEYS[11]) and redis.acl_check_cmd('LPUSH', KEYS[11], KEYS[11]) and redis.acl_check_cmd('PEXPIRE', KEYS[7], KEYS[7]) and redis.acl_check_cmd('PEXPIRE', KEYS[8], KEYS[8]) and redis.acl_check_cmd('PEXPIRE', KEYS[12], KEYS[12]) and redis.acl_check_cmd('PEXPIRE', KEYS[9], KEYS[9]) and redis.acl_check_cmd('PEXPIRE', KEYS[10], KEYS[10]) and redis.acl_check_cmd('PEXPIRE', KEYS[13], KEYS[13]) and redis.acl_check_cmd('PEXPIRE', KEYS[14], KEYS[14]) and redis.acl_check_cmd('PEXPIRE', KEYS[15], KEYS[15]) and redis.acl_check_cmd('PTTL', KEYS[7]) and redis.acl_check_cmd('PTTL', KEYS[8]) and redis.acl_check_cmd('PTTL', KEYS[12]) and redis.acl_check_cmd('PTTL', KEYS[9]) and redis.acl_check_cmd('PTTL', KEYS[10]) and redis.acl_check_cmd('PTTL', KEYS[13]) and redis.acl_check_cmd('PTTL', KEYS[14]) and redis.acl_check_cmd('PTTL', KEYS[15]) and redis.acl_check_cmd('SET', KEYS[1], KEYS[1]) and redis.acl_check_cmd('ZADD', KEYS[2], KEYS[2], KEYS[2]) and redis.acl_check_cmd('ZCARD', KEYS[2]) and redis.acl_check_cmd('ZCARD', KEYS[14]) and redis.acl_check_cmd('ZCARD', KEYS[15]) and redis.acl_check_cmd('ZCOUNT', KEYS[2], KEYS[2], KEYS[2]) and redis.acl_check_cmd('ZRANGE', KEYS[2], KEYS[2], KEYS[2]) and redis.acl_check_cmd('ZRANGEBYSCORE', KEYS[2], KEYS[2], KEYS[2]) and redis.acl_check_cmd('ZRANGEBYSCORE', KEYS[15], KEYS[15], KEYS[15]) and redis.acl_check_cmd('ZREM', KEYS[2], KEYS[2]) and redis.acl_check_cmd('ZREM', KEYS[15], KEYS[15]) and redis.acl_check_cmd('ZSCORE', KEYS[2], KEYS[2])) then error({err = 'NOPERM the user lacks a permission that the script needs'}) end
do
redis.call('HDEL', KEYS[3], '')
end
changed = true
end
end
local function remove_message(id)
redis.call('HDEL', KEYS[3], id)
redis.call('HDEL', KEYS[5], id)
redis.call('HDEL', KEYS[6], id)
redis.call('HDEL', KEYS[4], id)
end
local function put_right(id, member, record, entry)
local band, instant = place_of(member)
local d = entry and read_details(entry)
local state, reason, score = 0, 0, nil
if band and band <= 3 then
score = due_score(level_of(record), instant)
elseif not d then
return false
elseif d.state ~= 0 and (band ~= 5 or d.reason == 0) then
state, score = d.state, format('%d', 4 * 281474976710656 + (band == 4 and instant or now))
elseif d.reason ~= 0 then
reason, score = d.reason, format('%d', 5 * 281474976710656 + (band == 5 and instant or now))
elseif band then
score = due_score(d.level, d.due)
else
return false
end
if d and (d.state ~= state or d.reason ~= reason) then
d.state, d.reason = state, reason
redis.call('HSET', KEYS[4], id, write_details(d))
end
redis.call('ZADD', KEYS[2], score, member)
return true
end
local function has_finished(id, record, entry)
local past = finished_as(id)
if not past or not record then
return past
end
return not redis.call('ZSCORE', KEYS[2], member_of(record, id)) and is_over(record, past, entry)
end
local function promote(id, member, entry, update)
local lease, settled = '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0', 0
if entry and readable_details(entry) then
lease, settled = sub(entry, 4, 27), byte(entry, 2)
end
take_over(id, member, settled < 16 and 9 or math.floor(settled / 16), lease, settled, update)
redis.call('HSET', KEYS[4], unpack(new_details))
redis.call('ZADD', KEYS[2], unpack(new_places))
redis.call('HSET', KEYS[3], unpack(new_records))
redis.call('HSET', KEYS[6], unpack(new_updates))
redis.call('HDEL', KEYS[5], id)
if member ~= new_places[2] then
redis.call('ZREM', KEYS[2], member)
end
new_details, new_places, new_records, new_updates, removed, replaced_contents = {}, {}, {}, {}, {}, {}
end
local function mend(id, stray)
touch()
if not is_id(id) then
return redis.call('ZREM', KEYS[2], stray)
end
local record = redis.call('HGET', KEYS[3], id)
local entry = redis.call('HGET', KEYS[4], id)
local last_entry = entry
if has_finished(id, record, entry) then
remove_message(id)
return stray and redis.call('ZREM', KEYS[2], stray)
end
local _, limits = read_record(record)
local whole = has_content(id, record)
local member = whole and member_of(record, id) or stray
or record and #record >= 8 and member_of(record, id) or '\0\0\0\0\0\0\0\0' .. id
local known = whole
if whole and entry and readable_details(entry) then
if sub(entry, 28, 35) ~= sub(record, 1, 8) then
redis.call('HDEL', KEYS[4], id)
entry = nil
else
known = sub(entry, 36, 48) == fixed_of(record, limits)
end
elseif entry then
known = false
end
local update = redis.call('HGET', KEYS[6], id)
local followed = whole and sub(record, 1, 8) or update and sub(update, 33, 40)
if has_follower(update, followed) then
local band = place_of(member)
local is_held = known and entry and byte(entry, 1) ~= 0
and (not band or band == 4)
if not is_held then
promote(id, member, last_entry, update)
local own = member_of(redis.call('HGET', KEYS[3], id), id)
return stray and stray ~= own and redis.call('ZREM', KEYS[2], stray)
end
elseif update and #update > 32 and whole then
redis.call('HSET', KEYS[6], id, sub(update, 1, 32))
elseif update and #update ~= 32 then
redis.call('HDEL', KEYS[6], id)
end
if not known or not put_right(id, member, record, entry) then
local band, instant = place_of(member)
local left, stub = remains(member, record, band and band <= 3 and instant or now)
redis.call('HSET', KEYS[4], id, left)
redis.call('ZADD', KEYS[2], dead_score(), member)
if stub then
redis.call('HSET', KEYS[3], id, stub)
end
end
if stray and stray ~= member then
redis.call('ZREM', KEYS[2], stray)
end
end
local function mend_entry(member)
mend(sub(member, 9), member)
end
local function note_use(use)
if bit.band(control.uses, use) == 0 then
control.uses = bit.bor(control.uses, use)
touch()
end
end
local function note_uses()
for level = 0, 3 do
if count(level * 281474976710656, level * 281474976710656 + 253402300799999) > 0 then
note_use(2 ^ level)
end
end
if has_contents then
note_use(16)
end
if has_updates then
note_use(32)
end
end
local function repair_impossible()
each_gap(function(band, from, to)
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], from, to, 'LIMIT', 0, limit)) do
find(1, band, '')
mend_entry(member)
end
end)
end
local function remove_orphan(number, id)
find_orphan(number, id)
touch()
local update = redis.call('HGET', KEYS[6], id)
if update and has_follower(update, sub(update, 33, 40)) and is_id(id) and not finished_as(id) then
return mend(id)
end
redis.call('HDEL', KEYS[4], id)
redis.call('HDEL', KEYS[6], id)
redis.call('HDEL', KEYS[5], id)
end
local function repair_records(cursor)
local page = redis.call('HSCAN', KEYS[3], format('%.0f', cursor), 'COUNT', limit)
for i = 1, #page[2], 2 do
local id, value = page[2][i], page[2][i + 1]
if not is_id(id) then
find_orphan(6, id)
touch()
remove_message(id)
elseif #value < 8 or not redis.call('ZSCORE', KEYS[2], member_of(value, id)) then
find(7, id, '')
mend(id)
end
end
if page[1] ~= '0' then
return 6, tonumber(page[1])
end
return 7, 0
end
local function accounted_for()
return redis.call('ZCARD', KEYS[2]) + control.acked + control.cancelled + control.purged
+ control.relayed + control.replaced
end
local function limit_memories()
if redis.call('PTTL', KEYS[7]) == -1 then
touch()
redis.call('PEXPIRE', KEYS[7], 2 * 3600000)
end
if redis.call('PTTL', KEYS[8]) == -1 then
touch()
redis.call('PEXPIRE', KEYS[8], 3600000)
end
if redis.call('PTTL', KEYS[9]) == -1 then
touch()
redis.call('PEXPIRE', KEYS[9], 2 * 600000)
end
if redis.call('PTTL', KEYS[10]) == -1 then
touch()
redis.call('PEXPIRE', KEYS[10], 600000)
end
if redis.call('PTTL', KEYS[12]) == -1 then
touch()
redis.call('PEXPIRE', KEYS[12], 2678400000)
end
if redis.call('PTTL', KEYS[13]) == -1 then
touch()
redis.call('PEXPIRE', KEYS[13], 604800000)
end
if redis.call('PTTL', KEYS[14]) == -1 then
touch()
redis.call('PEXPIRE', KEYS[14], 604800000)
end
if redis.call('PTTL', KEYS[15]) == -1 then
touch()
redis.call('PEXPIRE', KEYS[15], 2678400000)
end
local endless = redis.call('ZRANGEBYSCORE', KEYS[15], '(' .. format('%.0f', 253402300799999), '+inf',
'LIMIT', '0', 1000)
if #endless > 0 then
touch()
redis.call('ZREM', KEYS[15], unpack(endless))
end
end
note_uses()
local examined = examine_entries(position, limit, mend_entry)
local goes_on = examined == limit
if not goes_on then
local number, cursor = 6, 0
if position and position.index >= 6 then
number, cursor = position.index, position.high * 4294967296 + position.low
if cursor >= 9007199254740992 then
cursor = 0
end
else
repair_impossible()
end
local right = redis.call('HLEN', KEYS[3]) == redis.call('ZCARD', KEYS[2])
and accounted_for() == control.sequence
if number == 6 and not right then
number, cursor = repair_records(cursor)
else
number, cursor = look_for_orphans(math.max(number, 7), cursor, remove_orphan)
end
if number then
goes_on = true
results[6], results[7] = number, 0
results[8], results[9] = math.floor(cursor / 4294967296), cursor % 4294967296
end
if not goes_on then
limit_memories()
local accounted = accounted_for()
if accounted ~= control.sequence then
find(6, control.sequence, accounted)
touch()
if accounted > control.sequence then
control.sequence = accounted
else
control.purged = control.purged + control.sequence - accounted
end
end
end
end
results[4] = examined
results[5] = goes_on and 1 or 0
if changed then
if silent then
redis.call('LPUSH', KEYS[11], '1')
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
