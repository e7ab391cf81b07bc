-- Checks that all trees of a slab of many are over, by the shard's present records.
--
-- KEYS  1 slabs   hash (ledger/includes/shard.lua)
--       2 vector  string: the slab's ack vector, which goes when all are over
-- ARGV  1 name    of the slab
-- Returns 1, or 0 if a tree is not over, or the shard has no track of the slab.
--- @chained reply == 1
local header = redis.call('HGET', KEYS[1], ARGV[1])
if not header or string.byte(header) ~= 2 then return 0 end
return string.find(redis.call('GET', KEYS[2]) or '', '%Z') and 0 or 1
