-- Gives the staged vectors of external segments a long time to live.
--
-- KEYS  ... staged  hash (lua/streams/includes/external.lua); in a chain, of any slot
-- ARGV  1 ttl  seconds
-- Returns 1, or 0 if one is not staged: others may have got the time to live. What only bits have made is not
-- staged, and what is acked is.
-- Bounded by the caller: at most 256 keys a call.
--- @chained reply == 1
for k = 1, #KEYS do
  local state = redis.call('HGET', KEYS[k], 'state')
  if not state then return 0 end
  if string.find(state, '[01]') then redis.call('EXPIRE', KEYS[k], ARGV[1], 'GT') end
end
return 1
