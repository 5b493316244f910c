-- Which layout a queue has. It is no operation of the model, and reads every layout: of the control
-- record it knows only the first bytes, which no version moves.
-- Results: 1 if the queue is there, and the bytes CONVERSION_HEAD of its control record, as far as
-- there are any.

local stored = redis.call('GET', key.control)
local exists = stored or redis.call('ZCARD', key.index) > 0
return {ANSWER_RESULTS, 0, 0, exists and 1 or 0, string.byte(stored or '', CONVERSION_HEAD)}
