-- Checks that a range of a reader's delivered segments still equals the plan of its batch.
--
-- KEYS  1 delivered  stream (lua/streams/log/claim_segments.lua)
-- ARGV  1 first, 2 last  ids of its entries
--       3 planned  digest of the segments (acker/streams/log/subscriptions.py)
-- Returns 1, or 0 if there are others, or none.
-- Bounded: 500 segments; a longer range differs from every plan.
--- @chained reply == 1
local ids = {}
for _, one in ipairs(redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[2], 'COUNT', 501)) do
  ids[#ids + 1] = string.match(one[2][4], '^%["(%x+)"') or ''
end
return string.sub(redis.sha1hex(table.concat(ids)), 1, 16) == ARGV[3] and 1 or 0
