-- A part of claim.lua: a due message whose details do not say that it waits. It is the half of an
-- operation that a torn file has left, or what is left of an earlier message of that id.

if readable_details(entry) and sub(entry, 27, 34) ~= sequence then
  entry = false
elseif readable_details(entry) and sub(entry, 35, 47) == fixed_of(record, limits)
  and not redis.call('ZSCORE', key.leased, member) and not redis.call('ZSCORE', key.dead, member) then
  ends_as = byte(entry)
  fits = ends_as == LEASED_PHASE -- nobody has that lease
else
  fits = false
end
