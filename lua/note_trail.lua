-- Notes how far one has come who carries out a commit (acker/streams/commits/trail.py).
--
-- KEYS  1 commits  hash (begin_commit.lua)
-- ARGV  1 number   of the commit
--       2 token    of the trail: each who carries it out has his own
--       3 at       how many notes this makes: 1 and up
-- Returns 1; 0 where the note before is not there, or the commit is not, or is done: nothing has changed.
local field = ARGV[1] .. ':trail:' .. ARGV[2]
local state, noted = unpack(redis.call('HMGET', KEYS[1], ARGV[1] .. ':state', field))
if not state or state == 'done' then return 0 end
local at, before = tonumber(ARGV[3]), tonumber(noted or 0)
if before ~= at and before ~= at - 1 then return 0 end
redis.call('HSET', KEYS[1], field, at)
return 1
