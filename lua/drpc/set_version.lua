-- Notes of which version of a function the steps of a stream are, where nobody has noted another since.
--
-- KEYS  1 subscriptions  hash (streams/includes/streams.lua)
-- ARGV  1 version        of the function (acker/drpc/registry.py)
--       2 before         the one that the caller has found; or empty
-- Returns 1, or 0 where there is another: nothing has changed.
local found = redis.call('HGET', KEYS[1], 'version') or ''
if found ~= ARGV[1] and found ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], 'version', ARGV[1])
return 1
