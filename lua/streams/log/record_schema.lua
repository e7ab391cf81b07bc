-- Records the schema of a stream, if it still is the schema that the caller has read.
--
-- KEYS  1 schema  string
-- ARGV  1 seen    the schema that the caller has read; empty: none
--       2 new     the new schema
-- Returns the recorded schema.
local stored = redis.call('GET', KEYS[1]) or ''
if stored ~= ARGV[1] then return stored end
redis.call('SET', KEYS[1], ARGV[2])
return ARGV[2]
