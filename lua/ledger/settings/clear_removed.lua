-- Lets a shard of a removed topology take calls again, for a topology of that name that is made anew.
--
-- KEYS  1 removed  string (lua/ledger/includes/shard.lua)
-- ARGV  1 found    as the caller has read it: a late copy of the call clears no later mark
--       2 ttl      seconds for which it is kept: no late copy of a call marks the shard again
-- Returns 1, or 0 where it says something else.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], 'c' .. string.sub(ARGV[1], 2), 'EX', ARGV[2])
return 1
