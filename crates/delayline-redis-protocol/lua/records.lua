-- Records, for the scripts that meet them.
--
-- records[id]: sequence 8 | enqueued_at 6 | digest 8 | form 1 | if LIMITED: max_failures 2
--   | max_crashes 2 | if EXPIRES: expires_at 6 | if HEADED: headers length 2 | headers | payload.
-- `form` is the level and the bits of what is not as usual: a message needs 23 bytes beside its
-- payload then. A content of more than SMALL bytes stands apart, so that scripts that need no
-- content do not read it; then LARGE and HEADED are set, in place of the content there stand headers
-- length 2 | payload length 4, and in contents[id]: headers length 2 | headers | payload.

local LIMITED, EXPIRES, HEADED, LARGE = 4, 8, 16, 32
local SMALL = 4096
local NO_DIGEST = '\0\0\0\0\0\0\0\0' -- of a record that takes the place of a lost one

-- The id's member in `due`, `leased` and `dead`: ties in a sorted set go by the bytes of the
-- member, so the sequence number in front keeps first-in-first-out.
local function member_of(record, id)
  return sub(record, 1, 8) .. id
end

local function level_of(record)
  return byte(record, 23) % 4
end

local function digest_of(record)
  return sub(record, 15, 22)
end
