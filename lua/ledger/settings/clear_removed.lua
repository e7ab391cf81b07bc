-- Lets a shard of a removed topology take calls again, for a topology of that name that is made anew.
--
-- KEYS  1 clock    hash (lua/ledger/includes/shard.lua)
-- ARGV  1 removed  its field of that name as the caller has read it: a late copy of the call clears no later
--                  one
-- Returns 1, or 0 where the field says something else.
if redis.call('HGET', KEYS[1], 'removed') ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
