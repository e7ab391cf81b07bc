-- Notes how far one has come who carries out a commit (acker/streams/commits/trail.py).
--
-- KEYS  1 commits  hash (begin_commit.lua)
-- ARGV  1 number   of the commit
--       2 token    of the trail: each who carries it out has his own
--       3 at       how many notes this makes: 1 and up
--       4 more     notes that follow in the same flight: where that is sent again, they may be there
-- Returns 1; 0 where the note before is not there, or the commit is not, or is done: nothing has changed.
-- Bounded: of a commit at most 100 trails are kept. Whose is gone begins again.
local n = ARGV[1]
local field = n .. ':trail:' .. ARGV[2]
local state, noted = unpack(redis.call('HMGET', KEYS[1], n .. ':state', field))
if not state or state == 'done' then return 0 end
local at, before = tonumber(ARGV[3]), tonumber(noted or 0)
if before < at - 1 or before > at + tonumber(ARGV[4]) then return 0 end
if before >= at then return 1 end
if not noted and redis.call('HLEN', KEYS[1]) > 100 then
  for _, other in ipairs(redis.call('HKEYS', KEYS[1])) do -- some hundred
    if string.find(other, n .. ':trail:', 1, true) == 1 then redis.call('HDEL', KEYS[1], other) end
  end
end
redis.call('HSET', KEYS[1], field, at)
return 1
