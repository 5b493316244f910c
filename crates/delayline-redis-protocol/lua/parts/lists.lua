-- For the scripts that fill lists of pairs.

local function push(list, first, second)
  local n = #list
  list[n + 1], list[n + 2] = first, second
end
