-- Checks that a shard holds none of some slabs.
--
-- KEYS  1 slabs  hash (ledger/includes/shard.lua)
-- ARGV  ... name  of each slab
-- Returns 1, or 0 if it holds one.
-- Bounded by the caller: at most 1,000 slabs a call.
--- @chained reply == 1
for k = 1, #ARGV do
  if redis.call('HEXISTS', KEYS[1], ARGV[k]) == 1 then return 0 end
end
return 1
