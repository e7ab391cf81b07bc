-- Reads the epoch of a topology: its random name in this store. A store that lost all data has another.
--
-- KEYS  1 config  hash
-- ARGV  1 epoch   given to a topology that has none yet
-- Returns the epoch; empty if the store does not hold the topology.
if redis.call('HEXISTS', KEYS[1], 'schema') == 0 then return '' end
redis.call('HSETNX', KEYS[1], 'epoch', ARGV[1])
return redis.call('HGET', KEYS[1], 'epoch')
