-- For take: a message that this call leases.
-- Reads id, member, record, entry, sequence, form, limits, whole and due; sets results, delivered
-- and what is to be written.
--@inline
local function deliver()
  local its_details, due_at, answer = nil, due[i], due[i]
  if due_at ~= alike_due then
    if alike > 0 then
      tally_deliveries()
    end
    alike_due, alike = due_at, 0
  end
  alike = alike + 1
  if entry then
    local epoch = struct.unpack(U64, entry, DETAILS_EPOCH_FROM) + 1
    its_details = NEXT_LEASE .. struct.pack(U64, epoch) .. claim_id .. sub(entry, DETAILS_COPIED)
      .. struct.pack(INSTANT, due_at) .. sub(entry, DETAILS_FAILURES_FROM)
    answer = struct.pack(INSTANT, deadline) .. its_details
  else
    -- The same as new_details and write_details, but faster.
    local rest = details_end[due_at]
    if not rest then
      rest = struct.pack(INSTANT, due_at) .. NO_HISTORY
      details_end[due_at] = rest
    end
    if usual_lane then
      its_details = first_lease .. sequence .. sub(record, RECORD_DIGEST) .. limits_of_group .. rest .. usual_lane
    elseif form < LIMITED then
      its_details = first_lease .. sequence .. sub(record, RECORD_DIGEST_FROM, RECORD_FORM)
        .. DEFAULT_LIMITS .. rest
    else
      its_details = first_lease .. sequence .. fixed_of(record, limits) .. rest .. lane_of(record)
    end
  end
  local n, m = #new_places, #new_details
  new_places[n + 1], new_places[n + 2] = leased_score, member
  new_details[m + 1], new_details[m + 2] = id, its_details
  if most and byte(member, MEMBER_SEQUENCE_FROM) == OF_GROUP then
    push(new_slots, format('%d', (struct.unpack(INSTANT, member, MEMBER_LANE_FROM))), member)
    local lane = several and by_turns and groups.lanes[sub(member, MEMBER_LANE)]
    if lane and in_order then
      lane.ends = true
    end
  end
  taken[delivered], lengths[delivered] = id, #id
  n = 4 + 3 * delivered
  results[n], results[n + 1], results[n + 2] = id, whole, answer
end

-- State::take: leases ready messages, and buries those that have expired or cannot be read.
-- Reads index, records and details; sets results, delivered, first_left and what is to be written.
--@inline
local function take()
  local leased_score = format('%d', AT_LEASED * BAND + deadline)
  local taken, lengths = {}, {}
  -- Details of a first lease, in front of the record's part and, by due instant, behind it.
  local first_lease, details_end = FIRST_LEASE .. claim_id, {}
  local limits_of_group = string.char(AT_GROUPED) .. DEFAULT_LIMITS
  local alike_due, alike = 0, 0 -- how many of the latest messages were due at the same instant
  local has_details, looked_at, most_headers = true, 0, NEVER
  take_ready()
  if alike > 0 then
    tally_deliveries()
  end
  if delivered > 0 then
    journaled = claim_id .. struct.pack(U16, delivered) .. string.char(unpack(lengths))
      .. table.concat(taken)
  end
end
