-- Has a shard of a topology that is being removed refuse all calls from now on.
--
-- KEYS  1 removed  string (lua/ledger/includes/shard.lua)
-- ARGV  1 found    as the caller has read it, or empty
--       2 until    ms of the server's clock
--       3 mark     random
--       4 ttl      seconds for which it refuses them
-- Returns 1. An error ACKER LATE if its topology was removed and made anew since the caller has read it, or
-- after `until`: a late copy of the call marks no shard of a topology that was made anew.
--- @include "store/includes/late"
if string.sub(redis.call('GET', KEYS[1]) or '', 1, 1) == 'r' then return 1 end
local refused = late(KEYS[1], ARGV[1], ARGV[2])
if refused then return refused end
redis.call('SET', KEYS[1], 'r' .. ARGV[3], 'EX', ARGV[4])
return 1
