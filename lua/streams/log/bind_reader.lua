-- Binds a reader's segments to a commit before it is committed: they are not given back until it has ended.
--
-- KEYS  1 fences    hash: "writer number" of a commit -> number of the last segment it acks, and its attempt;
--                   given_back -> the highest number given back (return_segments.lua)
-- ARGV  1 commit    "writer number"
--       2 segments  number of the last one, and the attempt
--       3 ttl
--       4 start     number before the first segment
-- Returns 1, or 0 if some were given back: no commit that may have read them is committed from then on.
--- @chained reply == 1
if tonumber(ARGV[4]) < tonumber(redis.call('HGET', KEYS[1], 'given_back') or 0) then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('EXPIRE', KEYS[1], ARGV[3])
return 1
