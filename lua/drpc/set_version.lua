-- Notes the version of a function for the steps of a stream, or that there is none any more, unless another
-- version was noted since.
--
-- KEYS  1 subscriptions  hash (streams/includes/streams.lua)
--       2 removals       string (store/includes/late.lua)
-- ARGV  1 version        of the function (acker/drpc/registry.py); or empty
--       2 before         the version that the caller has read; or empty
--       3 removals       as the caller has read it, or empty
--       4 until          ms of the server's clock
--       5 ttl            seconds for which `removals` is kept
-- Returns 1; 0 if there is another version; 2 if the version was removed since. Nothing has changed if it is
-- not 1. An error ACKER LATE if the stream was removed since, or after `until`. A removal that has begun
-- before a new version is noted removes nothing of the stream any more
-- (lua/ledger/settings/forget_keys.lua).
--- @include "store/includes/late"
local found = redis.call('HGET', KEYS[1], 'version') or ''
if found ~= ARGV[1] and found ~= ARGV[2] then return found == '' and 2 or 0 end
local refused = late(KEYS[2], ARGV[3], ARGV[4])
if refused then return refused end
if ARGV[1] == '' then
  redis.call('HDEL', KEYS[1], 'version')
  return 1
end
if found ~= ARGV[1] then
  redis.call('HSET', KEYS[1], 'version', ARGV[1])
  redis.call('INCRBY', KEYS[2], 1)
  redis.call('EXPIRE', KEYS[2], ARGV[5])
end
return 1
