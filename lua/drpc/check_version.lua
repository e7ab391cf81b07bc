-- Checks that the steps that read a stream have a version of their function.
--
-- KEYS  1 subscriptions  hash (streams/includes/streams.lua)
-- ARGV  1 version        of the function (acker/drpc/registry.py)
-- Returns 1, or 0.
--- @chained reply == 1
return redis.call('HGET', KEYS[1], 'version') == ARGV[1] and 1 or 0
