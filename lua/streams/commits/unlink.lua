-- Deletes keys, as UNLINK does: as a script that may be part of a chain.
--
-- KEYS  ... any
-- ARGV  none
-- Returns how many there were.
-- Bounded by the caller: at most 1,000 keys a call.
--- @chained true
return redis.call('UNLINK', unpack(KEYS))
