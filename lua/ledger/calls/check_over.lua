-- Tells whether all trees of a slab of many are over, by what its shard holds now.
--
-- KEYS  1 slabs   hash (ledger/includes/shard.lua)
--       2 vector  string: the slab's ack vector, which goes when all are over
-- ARGV  1 name    of the slab
-- Returns 1, or 0 where one is not over, or the shard does not know that the slab was tracked.
--- @chained reply == 1
local header = redis.call('HGET', KEYS[1], ARGV[1])
if not header or string.byte(header) ~= 2 then return 0 end
return string.find(redis.call('GET', KEYS[2]) or '', '%Z') and 0 or 1
