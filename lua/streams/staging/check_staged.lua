-- Checks that vectors are still staged.
--
-- KEYS  ... staged  hash (stage.lua)
-- ARGV  none
-- Returns 1, or 0 if some are not.
-- Bounded by the caller: at most 1,000 keys a call.
--- @chained reply == 1
for k = 1, #KEYS do
  if redis.call('EXISTS', KEYS[k]) == 0 then return 0 end
end
return 1
