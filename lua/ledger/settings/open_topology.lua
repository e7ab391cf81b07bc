-- Opens a topology: stores its configuration unless there is one.
--
-- KEYS  1 config  hash
-- ARGV  ... field, value  the configuration to store if there is none
-- Returns the stored configuration as field, value, field, value ...
if redis.call('HEXISTS', KEYS[1], 'schema') == 0 then redis.call('HSET', KEYS[1], unpack(ARGV)) end
return redis.call('HGETALL', KEYS[1])
