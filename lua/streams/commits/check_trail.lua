-- Tells whether a trail is there as it was noted last (note_trail.lua): else the store was set back since.
--
-- KEYS  1 commits  hash (begin_commit.lua)
-- ARGV  1 number   of the commit
--       2 token    of the trail
--       3 at       how many notes it has; one more, where this comes again
-- Returns 1, or 0, where the commit is not, or is done, too.
--- @chained reply == 1
local field = ARGV[1] .. ':trail:' .. ARGV[2]
local state, noted = unpack(redis.call('HMGET', KEYS[1], ARGV[1] .. ':state', field))
if not state or state == 'done' then return 0 end
local more = tonumber(noted or 0) - tonumber(ARGV[3])
return (more == 0 or more == 1) and 1 or 0
