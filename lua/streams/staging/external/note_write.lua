-- Notes what a write of a batch has sent. Rows that the batch tracks get new trees in each run, so a note
-- says then that no other run has the same inputs.
--
-- KEYS  1 notes    hash of the query: write -> its note (acker/spark/external/sending.py)
--       2 tracked  hash: calls of `track` whose rows the batch has read, as "<call>|..."
-- ARGV  1 write
--       2 note     with the digest of the inputs
--       3 note     without it
--       4 ttl      of the notes, in seconds
-- Returns 1, or 0 if the batch tracks rows.
-- Bounded: the hash of tracked rows has a field for each of their partitions.
local tracks = false
for _, name in ipairs(redis.call('HKEYS', KEYS[2])) do
  tracks = tracks or string.find(name, '|', 1, true) ~= nil
end
redis.call('HSET', KEYS[1], ARGV[1], tracks and ARGV[3] or ARGV[2])
redis.call('EXPIRE', KEYS[1], ARGV[4])
return tracks and 0 or 1
