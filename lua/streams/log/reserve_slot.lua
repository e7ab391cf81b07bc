-- Gives a stream without subscriptions the number of the next one, and its epoch, unless it has them.
--
-- KEYS  1 subscriptions  hash (streams/includes/streams.lua)
--       2 removals       string (store/includes/late.lua)
-- ARGV  1 number         random: both
--       2 removals       as the caller has read it, or empty
--       3 until          ms of the server's clock
-- Returns 1. An error ACKER LATE if the stream was removed since, or after `until`.
--- @include "store/includes/late"
local refused = late(KEYS[2], ARGV[2], ARGV[3])
if refused then return refused end
redis.call('HSETNX', KEYS[1], 'next', ARGV[1])
redis.call('HSETNX', KEYS[1], 'epoch', ARGV[1])
return 1
