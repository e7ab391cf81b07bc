-- Notes in a shard that a commit has made something elsewhere, which its inputs must not be acked without.
-- It goes behind what makes that (acker/streams/commits/publishing.py).
--
-- KEYS  1 made   hash (ledger/includes/made.lua)
-- ARGV  1 what   names it, for this commit; not in 8 bytes, as slabs are named
--       2 ttl    seconds for which it is noted where nobody ends the commit
-- Returns 1.
--- @chained true
redis.call('HSET', KEYS[1], ARGV[1], '')
redis.call('EXPIRE', KEYS[1], ARGV[2])
return 1
