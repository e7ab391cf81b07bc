-- Deletes keys like UNLINK, in a script that may be part of a chain.
--
-- KEYS  ... any
-- ARGV  none
-- Returns the number of deleted keys.
-- Bounded by the caller: at most 1,000 keys a call.
--- @chained true
return redis.call('UNLINK', unpack(KEYS))
