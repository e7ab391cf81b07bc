-- Drops dead letters of a spout, with their rows; the same again changes nothing.
--
-- KEYS  1 dead     stream  the facts of each
--       2 letters  hash    id -> record of its roots, and its row
-- ARGV  ... id     of a dead letter
-- Returns the number of dropped letters.
-- Bounded by the caller: at most 1,000 ids a call.
--- @chained true
redis.call('HDEL', KEYS[2], unpack(ARGV))
return redis.call('XDEL', KEYS[1], unpack(ARGV))
