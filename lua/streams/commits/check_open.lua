-- Finds slabs of many with unfinished trees, by the shard's present records.
--
-- KEYS  1 slabs       hash (ledger/includes/shard.lua)
--       ... vector    string of each slab: its ack vector, which goes when all are over
-- ARGV  ... name      of each slab
-- Returns a digit for each slab: 1, or 0 if all its trees are over, or the shard has no track of it.
-- Bounded by the caller: at most 500 slabs a call.
--- @chained not string.find(reply, '0', 1, true)
local found, headers = {}, redis.call('HMGET', KEYS[1], unpack(ARGV))
for k = 1, #ARGV do
  local tracked = headers[k] and string.byte(headers[k]) == 2
  found[k] = tracked and string.find(redis.call('GET', KEYS[k + 1]) or '', '%Z') and '1' or '0'
end
return table.concat(found)
