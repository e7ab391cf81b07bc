-- Raises the highest offset of a spout's rows in each partition of its source, after all rows below are kept.
--
-- KEYS  1 highest  hash: partition -> the offset after its highest row
-- ARGV  ... name, offset  of each partition: the offset after its highest row
-- Returns the number of raised offsets.
-- Bounded by the caller: at most 1,000 partitions a call.
--- @chained true
local call, highest, raised = redis.call, KEYS[1], 0
for i = 1, #ARGV, 2 do
  local known = call('HGET', highest, ARGV[i])
  if not known or tonumber(known) < tonumber(ARGV[i + 1]) then
    call('HSET', highest, ARGV[i], ARGV[i + 1])
    raised = raised + 1
  end
end
return raised
