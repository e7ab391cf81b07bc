-- Registers a spout of its topology.
--
-- KEYS  1 config  hash
-- ARGV  1 field   "spout:<name>"
--       2 most    most spouts of a topology
-- Returns 1 for a new spout, otherwise 0, as in a store without the topology; an error if there are too many.
if redis.call('HEXISTS', KEYS[1], 'schema') == 0 then return 0 end
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then return 0 end
local count = tonumber(redis.call('HGET', KEYS[1], 'spouts') or 0)
if count >= tonumber(ARGV[2]) then
  return redis.error_reply('ACKER the topology has ' .. count .. ' spouts already, its most')
end
redis.call('HSET', KEYS[1], ARGV[1], 1, 'spouts', count + 1)
return 1
