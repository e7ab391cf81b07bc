-- Notes in a shard that a commit has made a record elsewhere, which the acks of its inputs depend on. It runs
-- after the script that makes the record (acker/streams/commits/publishing.py).
--
-- KEYS  1 applied  hash (ledger/includes/applied.lua)
-- ARGV  1 what   its name within this commit; not 8 bytes long, unlike names of slabs
--       2 ttl    seconds for which it is noted if nobody ends the commit
-- Returns 1.
--- @chained true
redis.call('HSET', KEYS[1], ARGV[1], '')
redis.call('EXPIRE', KEYS[1], ARGV[2])
return 1
