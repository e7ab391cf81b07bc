-- Removes a spout from its topology.
--
-- KEYS  1 config  hash
-- ARGV  1 field   "spout:<name>"
-- Returns 1 if it existed, otherwise 0.
local there = redis.call('HDEL', KEYS[1], ARGV[1])
if there == 1 then redis.call('HINCRBY', KEYS[1], 'spouts', -1) end
return there
