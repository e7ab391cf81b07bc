-- Reads the life of a topology: a name for it in this store, which a store that lost everything has not.
--
-- KEYS  1 config  hash
-- ARGV  1 life    given to a topology that has none yet
-- Returns it; empty where the store does not hold the topology.
if redis.call('HEXISTS', KEYS[1], 'schema') == 0 then return '' end
redis.call('HSETNX', KEYS[1], 'life', ARGV[1])
return redis.call('HGET', KEYS[1], 'life')
