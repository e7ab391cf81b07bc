-- Notes the version of a function for the steps of a stream, unless another version was noted since.
--
-- KEYS  1 subscriptions  hash (streams/includes/streams.lua)
-- ARGV  1 version        of the function (acker/drpc/registry.py)
--       2 before         the version that the caller has read; or empty
-- Returns 1, or 0 if there is another: nothing has changed.
local found = redis.call('HGET', KEYS[1], 'version') or ''
if found ~= ARGV[1] and found ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], 'version', ARGV[1])
return 1
