-- Changes settings of a topology, all at once.
--
-- KEYS  1 config  hash
-- ARGV  ... field, value  the settings that change
-- Returns the stored configuration as field, value, field, value ...; nothing if there is none.
if redis.call('HEXISTS', KEYS[1], 'schema') == 0 then return {} end
redis.call('HSET', KEYS[1], unpack(ARGV))
return redis.call('HGETALL', KEYS[1])
