#!lua flags=allow-oom
-- Notes why what a worker has begun was not committed, for whoever ends its lease.
--
-- KEYS  1 workers  hash (lua/workers/lease.lua)
-- ARGV  1 reader
--       2 begun    what it has begun
--       3 reason
-- Returns 1, or 0 where it has not begun that, or not any more: nothing has changed.
-- A store without memory takes it, too, for that may be the reason: a short text, once for what was begun.
if redis.call('HGET', KEYS[1], '!' .. ARGV[1]) ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], '?' .. ARGV[1], ARGV[3])
return 1
