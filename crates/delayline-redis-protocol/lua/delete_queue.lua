-- Removes all keys of a queue that holds nothing. It is no operation of the model, whose queues do
-- not end.
-- ARGV: now, whether to remove it. Results: whether the queue exists, and how many messages,
-- results and throttled ids it holds. It is removed if these are 0.
--
-- What is remembered of finished messages goes, too: it keeps repeated sends away for an hour only.

--@include prelude.lua

-- READ
local messages = redis.call('ZCARD', key.index)
-- Records that a repair would bring back.
local records = redis.call('HLEN', key.records)
local results = redis.call('ZCOUNT', key.results_until, format('(%d', now), '+inf')
local windows = redis.call('ZCOUNT', key.windows, format('(%d', now), '+inf')

-- DECIDE
messages = math.max(messages, records)
local exists = control.stored or messages + results + windows > 0

-- WRITE
if exists and messages + results + windows == 0 and ARGV[2] == '1' then
  redis.call('UNLINK', key.control, key.index, key.records, key.details, key.contents, key.updates,
    key.finished_new, key.finished_old, key.journal_new, key.journal_old, key.bell, key.fence, key.totals,
    key.history, key.results, key.results_until, key.windows, key.turns, key.slots)
end
return {ANSWER_RESULTS, now, control.revision, exists and 1 or 0, messages, results, windows}
