-- Notes the version of a function for the steps of a stream, or that there is none any more, unless another
-- version was noted since.
--
-- KEYS  1 subscriptions  hash (streams/includes/streams.lua)
--       2 removals       string (store/includes/late.lua)
-- ARGV  1 version        of the function (acker/drpc/registry.py); or empty
--       2 before         the version that the caller has read; or empty
--       3 removals       as the caller has read it, or empty
--       4 until          ms of the server's clock
-- Returns 1, or 0 if there is another: nothing has changed. An error ACKER LATE if the stream was removed
-- since, or after `until`.
--- @include "store/includes/late"
local found = redis.call('HGET', KEYS[1], 'version') or ''
if found ~= ARGV[1] and found ~= ARGV[2] then return 0 end
local refused = late(KEYS[2], ARGV[3], ARGV[4])
if refused then return refused end
if ARGV[1] == '' then redis.call('HDEL', KEYS[1], 'version')
else redis.call('HSET', KEYS[1], 'version', ARGV[1]) end
return 1
