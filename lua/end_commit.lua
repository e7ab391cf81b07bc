-- Ends a commit that was carried out as a chain: it is done, and what was noted on the way goes.
--
-- KEYS  1 commits   hash (lua/begin_commit.lua)
--       2 bound     hash of the reader whose segments it acked (lua/bind_reader.lua); where there is none,
--                   the first key again
--       ... spent   key of any kind: what was made in each shard (includes/made.lua), and tracked
-- ARGV  1 number
--       2 what      what the caller knows as stored
--       3 of        of which batch it is, kept with it; or empty
--       4 field     of the commit in `bound`; where there is none, empty
-- Returns 1, or 0 where it is in another state or is to do something else: nothing has changed.
--- @chained reply == 1
local n = ARGV[1]
local state, stored = unpack(redis.call('HMGET', KEYS[1], n .. ':state', n .. ':what'))
if state ~= 'tracked' or stored ~= ARGV[2] then return 0 end
local of = ARGV[3] == '' and '' or ' ' .. ARGV[3]
redis.call('HSET', KEYS[1], n .. ':state', 'done', n .. ':what', redis.sha1hex(stored) .. of)
redis.call('HDEL', KEYS[2], ARGV[4])
for k = 3, #KEYS do redis.call('UNLINK', KEYS[k]) end
return 1
