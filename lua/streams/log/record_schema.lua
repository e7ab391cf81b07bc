-- Records the schema of a stream, where it is still what the caller has seen.
--
-- KEYS  1 schema  string
-- ARGV  1 seen    what was recorded when the caller looked; empty: nothing
--       2 new     what is to be recorded
-- Returns what is recorded now.
local stored = redis.call('GET', KEYS[1]) or ''
if stored ~= ARGV[1] then return stored end
redis.call('SET', KEYS[1], ARGV[2])
return ARGV[2]
