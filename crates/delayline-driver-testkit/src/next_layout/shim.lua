-- Put in front of a script, it makes one of a next version whose layout is another: each key of a
-- queue that moves a field is read and written through it.
local redis = setmetatable({}, {__index = redis})
do
  local call = redis.call
  local unpack = unpack or table.unpack
  -- How many bytes at the beginning of a value have moved to its end.
  local moved = {records = 8, details = 3}

  local function old_form(value, by)
    if not value then
      return value
    end
    value = string.sub(value, 2)
    return string.sub(value, -by) .. string.sub(value, 1, -by - 1)
  end

  local function new_form(value, by)
    return '\3' .. string.sub(value, by + 1) .. string.sub(value, 1, by)
  end

  function redis.call(command, key, ...)
    if not key then
      return call(command)
    end
    local name = string.match(key, '[^:]*$')
    local by, args = moved[name], {...}
    if by and command == 'HSET' then
      for i = 2, #args, 2 do
        args[i] = new_form(args[i], by)
      end
    elseif name == 'control' and command == 'SET' then
      args[1] = new_form(string.sub(args[1], 2), 8)
    end
    local reply = call(command, key, unpack(args))
    if by and command == 'HGET' then
      return old_form(reply, by)
    elseif by and command == 'HMGET' then
      for i = 1, #reply do
        reply[i] = old_form(reply[i], by)
      end
    elseif by and command == 'HSCAN' then
      for i = 2, #reply[2], 2 do
        reply[2][i] = old_form(reply[2][i], by)
      end
    elseif by and command == 'HSTRLEN' then
      return math.max(reply - 1, 0)
    elseif name == 'control' and command == 'GET' and reply then
      local version = string.byte(reply)
      if version == 3 then
        return '\2' .. old_form(reply, 8)
      elseif version == 2 then
        return '\1' .. string.sub(reply, 2) -- an older one, to this version
      end
    end
    return reply
  end
end
