-- Checks that exactly this is noted of a group's requests, and the group was not released.
--
-- KEYS  1 progress  hash (note_arrivals.lua)
-- ARGV  1 over, 2 acked  bitmaps
-- Returns 1, or 0.
--- @chained reply == 1
local over, acked = unpack(redis.call('HMGET', KEYS[1], 'over', 'acked'))
return over == ARGV[1] and acked == ARGV[2] and 1 or 0
