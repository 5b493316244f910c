-- State::take_over: puts a follower in the place of a message that ends as `status`, and counts
-- that. `update` is what stands in `updates`, `lease` and `settled` are kept to recognise the
-- settlement when it is repeated.
-- Sets what is to be written. Answers when the follower is due.
local function take_over(id, member, status, lease, settled, update)
  local counter = status == ACKED and 'acked' or status == CANCELLED and 'cancelled' or 'replaced'
  control[counter] = control[counter] + 1
  local level, lane = byte(update, UPDATES_LEVEL), ''
  local sequence = next_sequence(level)
  local due = math.max(now, (struct.unpack(INSTANT, update, UPDATES_DUE_FROM)))
  if level == AT_GROUPED then
    lane = sub(update, UPDATES_REST_FROM + INSTANT_BYTES, UPDATES_REST_FROM + GROUP_BYTES - 2)
  end
  local new_member = sequence .. lane .. id
  local d = fresh_details(sequence, sub(update, UPDATES_DIGEST) .. sub(update, UPDATES_LIMITED), lane)
  d.lease, d.settled, d.due = lease, settled, due
  push(new_details, id, write_details(d))
  push(new_places, due_score(level, due), new_member)
  push(new_records, id, sequence .. sub(update, UPDATES_ENQUEUED_AT_FROM))
  push(new_updates, id, sub(update, UPDATES_TOKENS))
  if member ~= new_member then -- else the sequence number was given before, by an operation that was torn
    removed[#removed + 1] = member
  end
  if bit.band(control.uses, USES_CONTENTS) ~= 0 then
    replaced_contents[#replaced_contents + 1] = id
  end
  return due
end

-- Whether what stands in `updates` has a follower that can be read, and that follows the message
-- with this sequence number. A torn file may keep one that has taken its message's place.
local function has_follower(update, sequence)
  return update and #update >= FOLLOWED_BYTES and sub(update, UPDATES_FOLLOWS) == sequence
    and (byte(update, UPDATES_LEVEL) <= LAST_LEVEL or byte(update, UPDATES_LEVEL) == AT_GROUPED
      and byte(update, UPDATES_FORM) >= GROUPED and #update >= FOLLOWED_BYTES + GROUP_BYTES)
    and struct.unpack(INSTANT, update, UPDATES_DUE_FROM) <= MAX_TIMESTAMP
end
