-- Gives the staged data of a commit a long time to live; permanent keys stay permanent.
--
-- KEYS  ... staged  of any kind; in a chain, of any slot
-- ARGV  1 ttl       seconds
-- Returns 1, or 0 if a key is gone: others may have got the time to live.
-- Bounded by the caller: at most 256 keys a call.
--- @chained reply == 1
for k = 1, #KEYS do
  local held = redis.call('EXPIRE', KEYS[k], ARGV[1], 'XX') == 1
  if not held and redis.call('EXISTS', KEYS[k]) == 0 then return 0 end
end
return 1
