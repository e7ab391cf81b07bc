-- Counts rows of a segment that a subscription has dropped because all their trees were over: once, however
-- often the segment is read.
--
-- KEYS  1 subscriptions  hash (streams/includes/streams.lua)
--       2 stale          string: a mark that they were counted
-- ARGV  1 slot
--       2 rows
--       3 ttl            seconds for which the mark is kept
-- Returns 1 if they were counted now.
if not redis.call('SET', KEYS[2], ARGV[2], 'NX', 'EX', ARGV[3]) then return 0 end
if redis.call('HEXISTS', KEYS[1], 'slot:' .. ARGV[1]) == 0 then return 0 end
redis.call('HINCRBY', KEYS[1], 'stale:' .. ARGV[1], ARGV[2])
return 1
