-- For the scripts that give messages a due instant, or bury them.

-- An instant in an argument: 1 byte (1: relative to now, 0: absolute), 6 bytes of milliseconds.
local function instant(argument, position)
  local relative, ms = struct.unpack(SCHEDULE_FORMAT, argument, position)
  if relative == 1 then
    return after(ms)
  end
  return ms
end

-- The score of a waiting message, as text.
local function due_score(level, due)
  control.uses = bit.bor(control.uses, 2 ^ level)
  return format('%d', level * BAND + due)
end

-- The next sequence number, in the form with which records and members of this level begin.
local function next_sequence(level)
  control.sequence = control.sequence + 1
  local sequence = struct.pack(U64, control.sequence)
  return level == AT_GROUPED and OF_GROUP_BYTE .. sub(sequence, 2) or sequence
end

-- The score of a message in a lane, as text.
local function lane_score(lane)
  return format('%d', AT_LANES * BAND + (struct.unpack(INSTANT, lane)))
end

-- The score of a message that dies now, as text.
local function dead_score()
  return format('%d', AT_DEAD * BAND + now)
end
