-- For the scripts that give messages a due instant.

-- An instant in an argument: 1 byte (1: from now on, 0: absolute), 6 bytes of milliseconds.
local function instant(argument, position)
  local relative, ms = struct.unpack(SCHEDULE_FORMAT, argument, position)
  if relative == 1 then
    return after(ms)
  end
  return ms
end

-- The score of a message in `due`, as text.
local function due_score(level, due)
  control.uses = bit.bor(control.uses, 2 ^ level)
  return format('%d', level * LEVEL + due)
end
