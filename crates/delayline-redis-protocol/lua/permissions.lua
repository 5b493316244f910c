-- Which commands this user may run on which keys. ARGV: command, key, how many arguments the
-- command needs at least, and so on.
-- Results: 1 for each command that is permitted, 0 for each that is not.
--
-- Redis 6 cannot be asked; there every answer is 1.

local results = {0}
for i = 1, #ARGV, 3 do
  local command, name = ARGV[i], ARGV[i + 1]
  local arguments = {}
  for n = 1, tonumber(ARGV[i + 2]) do
    arguments[n] = name
  end
  local denied = redis.acl_check_cmd and not redis.acl_check_cmd(command, unpack(arguments))
  results[#results + 1] = denied and 0 or 1
end
return results
