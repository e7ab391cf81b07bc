-- Notes that the rows of a stream are persisted, since a sink evaluates them twice. A stream that was
-- removed meanwhile is not made again.
--
-- KEYS  1 subscriptions  hash (streams/includes/streams.lua)
-- ARGV  1 field
-- Returns 1, or 0 if the stream is gone.
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], 1)
return 1
