-- State::take: leases ready messages, and buries those that have expired or cannot be read.
-- Reads index, records and details; sets results, delivered, first_left and what is to be written.
--@inline
local function take()
  local leased_score = format('%d', AT_LEASED * BAND + deadline)
  local bytes, looked_at, taken, lengths = 0, 0, {}, {}
  -- Details of a first lease, in front of the record's part and, by due instant, behind it.
  local first_lease, details_end = FIRST_LEASE .. claim_id, {}
  local alike_due, alike = 0, 0 -- how many of the latest were due at the same instant
  local wanted = max
  repeat
    local ids, members, due
    ids, members, due, first_left = ready_messages(wanted)
    local records, stored = {}, {}
    if #ids > 0 then
      records = redis.call('HMGET', key.records, unpack(ids))
      stored = redis.call('HMGET', key.details, unpack(ids))
    end
    local left_from
    for i, id in ipairs(ids) do
      if delivered == max or looked_at - delivered == MAX_BURIALS then
        left_from = i
        break
      end
      local record, member, entry = records[i], members[i], stored[i]
      local sequence, form, content, limits, expires_at, fits, whole
      look_at_message()
      if fits and expires_at > now then
        local headers, payload = 0, #record - content + 1
        if form >= HEADED then
          headers, payload = content_lengths(record, content)
        end
        bytes = bytes + headers + payload
        if bytes > MAX_BATCH_BYTES and delivered > 0 then
          left_from = i
          break
        end
        whole = form < LARGE and record or whole_record(id, record, content)
      end
      looked_at = looked_at + 1
      if whole then
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
          -- Shortcuts new_details and write_details.
          local rest = details_end[due_at]
          if not rest then
            rest = struct.pack(INSTANT, due_at) .. NO_HISTORY
            details_end[due_at] = rest
          end
          if form < LIMITED then
            its_details = first_lease .. sequence .. sub(record, RECORD_DIGEST_FROM, RECORD_FORM)
              .. DEFAULT_LIMITS .. rest
          else
            its_details = first_lease .. sequence .. fixed_of(record, limits) .. rest
          end
        end
        local n, m = #new_places, #new_details
        new_places[n + 1], new_places[n + 2] = leased_score, member
        new_details[m + 1], new_details[m + 2] = id, its_details
        delivered = delivered + 1
        taken[delivered], lengths[delivered] = id, #id
        n = 3 + 3 * delivered
        results[n], results[n + 1], results[n + 2] = id, whole, answer
      else
        bury_due()
      end
    end
    if left_from then
      for left = left_from, #ids do
        first_left = math.min(first_left, due[left])
      end
    end
    -- For each message that is buried it looks at another one, and at more at a time.
    local buried = looked_at - delivered
    local is_over = left_from or #ids < wanted or delivered == max or buried == MAX_BURIALS
    wanted = math.min(max - delivered + buried, MAX_BATCH)
  until is_over
  if alike > 0 then
    tally_deliveries()
  end
  if delivered > 0 then
    journaled = claim_id .. struct.pack(U16, delivered) .. string.char(unpack(lengths))
      .. table.concat(taken)
  end
end
