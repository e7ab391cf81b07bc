#!lua flags=allow-oom
-- Notes the reason why a worker's begun work was not committed, for the process that ends its lease.
--
-- KEYS  1 workers  hash (lua/workers/lease.lua)
-- ARGV  1 reader
--       2 begun    the begun work
--       3 reason
-- Returns 1, or 0 if that is not its begun work: nothing has changed.
-- A store without memory also takes it, because that may be the reason: a short text, once for begun work.
if redis.call('HGET', KEYS[1], '!' .. ARGV[1]) ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], '?' .. ARGV[1], ARGV[3])
return 1
