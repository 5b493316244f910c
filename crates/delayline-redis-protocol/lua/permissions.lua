-- Which commands this user may run on which keys. ARGV: command, key, and so on.
-- Results: 1 for each pair that is permitted, 0 for each that is not.
--
-- A script that is stopped half-way by a missing permission is not rolled back, so that is found
-- out before. Redis 6 cannot be asked; there every answer is 1.

local results = {0}
for i = 1, #ARGV, 2 do
  local command, name = ARGV[i], ARGV[i + 1]
  local denied = redis.acl_check_cmd and not redis.acl_check_cmd(command, name, name)
  results[#results + 1] = denied and 0 or 1
end
return results
