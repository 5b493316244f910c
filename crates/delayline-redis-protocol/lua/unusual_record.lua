-- A part of enqueue.lua: the record of a message that expires or is large.

local digest, expires_at = 1, ''
if expires then
  digest, expires_at = 8, pack('>I6', instant(item, 1))
end
local form, content = byte(item, digest + 8), digest + 9
if bit.band(form, LIMITED) ~= 0 then
  content = content + 4
end
local record = high .. low .. enqueued_at .. sub(item, digest, content - 1) .. expires_at
if form >= LARGE then
  new_contents[#new_contents + 1] = id
  new_contents[#new_contents + 1] = sub(item, content + 6)
  record = record .. sub(item, content, content + 5)
else
  record = record .. sub(item, content)
end
new_records[2 * created] = record
