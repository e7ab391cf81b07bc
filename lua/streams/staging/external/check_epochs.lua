-- Says whether external streams are still the ones whose rows a commit has received.
--
-- KEYS  ... subscriptions  hash of each stream (streams/includes/streams.lua); in a chain, of any slot
-- ARGV  ... epoch          of each, as the rows were received
-- Returns 1, or 0 if one is another stream, or gone.
-- Bounded by the caller: at most 100 streams a call.
--- @chained reply == 1
for k = 1, #KEYS do
  if redis.call('HGET', KEYS[k], 'epoch') ~= ARGV[k] then return 0 end
end
return 1
