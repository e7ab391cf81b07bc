-- Checks that a gathering stream holds none of some groups.
--
-- KEYS  ... progress  hash of each group (lua/lines/note_arrivals.lua)
-- ARGV  none
-- Returns 1, or 0 if it holds one.
-- Bounded by the caller: at most 1,000 groups a call.
--- @chained reply == 1
for k = 1, #KEYS do
  if redis.call('EXISTS', KEYS[k]) == 1 then return 0 end
end
return 1
