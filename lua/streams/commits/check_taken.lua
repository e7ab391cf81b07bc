-- Tells whether a range of what a reader took is still what its batch was planned with.
--
-- KEYS  1 taken   stream (lua/streams/log/claim_segments.lua)
-- ARGV  1 first, 2 last  ids of its entries
--       3 planned  digest of the segments (acker/streams/log/subscriptions.py)
-- Returns 1, or 0 where there are others, or none.
-- Bounded: 500 segments; a range of more is not what was planned.
--- @chained reply == 1
local tokens = {}
for _, one in ipairs(redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[2], 'COUNT', 501)) do
  tokens[#tokens + 1] = string.match(one[2][4], '^%["(%x+)"') or ''
end
return string.sub(redis.sha1hex(table.concat(tokens)), 1, 16) == ARGV[3] and 1 or 0
