-- How every conversion ends. In front of this it has declared:
--   page              what HSCAN has returned
--   is_last_phase     whether it has no further hash
--   convert_control   the new control record from the old one

seen = seen + #page[2] / 2
cursor = tonumber(page[1])
if cursor > 0 then
  keep_mark()
elseif not is_last_phase then
  phase = phase + 1
  keep_mark()
else
  version, begun = from + 1, false
  redis.call('SET', key.control, convert_control(old))
end
return answer()
