-- Raises the highest offset of a spout's rows in each partition of its source, after all rows below are kept.
--
-- KEYS  1 highest   hash: partition -> the offset after its highest row
--       2 removals  string (store/includes/late.lua)
-- ARGV  1 removals  as the caller has read it, or empty
--       2 until     ms of the server's clock; 0: the chain of its call ends late copies
--       ... name, offset  of each partition: the offset after its highest row
-- Returns the number of raised offsets. An error ACKER LATE, and nothing has changed, if the spout was
-- removed since, or after `until`.
-- Bounded by the caller: at most 1,000 partitions a call.
--- @chained true
--- @include "store/includes/late"
local refused = ARGV[2] ~= '0' and late(KEYS[2], ARGV[1], ARGV[2])
if refused then return refused end
local call, highest, raised = redis.call, KEYS[1], 0
for i = 3, #ARGV, 2 do
  local known = call('HGET', highest, ARGV[i])
  if not known or tonumber(known) < tonumber(ARGV[i + 1]) then
    call('HSET', highest, ARGV[i], ARGV[i + 1])
    raised = raised + 1
  end
end
return raised
