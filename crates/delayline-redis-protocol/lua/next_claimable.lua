-- State::next_claimable: the earliest due instant or end of a lease, of what is there after the writes.
-- Reads lease_end, first_left, which is nil while the queue is paused, and leaving, how many entries leave the
-- levels; sets next.
--@inline
local function next_claimable()
  if first_left then
    next = math.min(first_left, lease_end or NEVER)
    if next == NEVER then
      next = nil
      if control.uses ~= USES_ALL and redis.call('ZCOUNT', key.index, '0', LAST_WAITING) > leaving then
        control.uses, changed, next = USES_ALL, true, now -- which levels are used was not known
      end
    end
  end
end
