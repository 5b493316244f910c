-- For claim: the messages of each consumer's last claim, remembered in two generations; see
-- Generations in delayline-core for the rules of forgetting.

local journal_age = now - control.journal_since
local younger, last_claim

-- Generations::get. Sets last_claim, and younger, which is the entry of the younger generation.
--@inline
local function read_journal()
  younger = redis.call('HGET', key.journal_new, consumer)
  last_claim = journal_age < 2 * JOURNAL_RETENTION and younger
  if not last_claim and journal_age < JOURNAL_RETENTION then
    last_claim = redis.call('HGET', key.journal_old, consumer)
  end
end

-- How many consumers the younger generation remembers, and whether it becomes the older one now.
local journal_count, journal_rotates

-- Sets both. Fails if the journal may not be written.
--@inline
local function count_journal()
  --@ask HSET journal_new
  -- An entry that replaces another one needs no room.
  journal_count = younger and 1 or redis.call('HLEN', key.journal_new)
  journal_rotates = journal_age >= JOURNAL_RETENTION or journal_count >= MAX_JOURNAL
  if journal_rotates or journal_count == 0 then
    --@ask UNLINK journal_new, UNLINK journal_old, RENAME journal_new, RENAME journal_old
    --@ask PEXPIRE journal_new, PEXPIRE journal_old
  end
end

-- Generations::rotate. Sets journal_count.
--@inline
local function rotate_journal()
  if journal_age >= 2 * JOURNAL_RETENTION then
    redis.call('UNLINK', key.journal_new, key.journal_old)
    control.journal_since, journal_count = now, 0
  elseif journal_rotates then
    redis.call('UNLINK', key.journal_old)
    if journal_count > 0 then
      redis.call('RENAME', key.journal_new, key.journal_old)
      redis.call('PEXPIRE', key.journal_old, JOURNAL_RETENTION)
    end
    control.journal_since, journal_count = now, 0
  end
end
