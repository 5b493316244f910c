-- Whether a message without a place has ended, and a file that was torn there has kept its record.
-- `past` is what is remembered of its id, and `details` are its details, if there are any.
local function is_over(record, past, details)
  return past and #record >= RECORD_BYTES and sub(past, FINISHED_DIGEST) == digest_of(record)
    and (#past == FINISHED_BYTES or sub(past, FINISHED_LEASE) == NO_LEASE
      or details and sub(past, FINISHED_LEASE) == sub(details, DETAILS_LEASE))
end
