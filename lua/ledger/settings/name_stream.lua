-- Notes a stream among the streams of its topology.
--
-- KEYS  1 streams  set
-- ARGV  1 name
--       2 config   key of the topology's configuration
-- Returns 1 for a new stream, otherwise 0.
--- @include "store/includes/owned"
local new = redis.call('SADD', KEYS[1], ARGV[1])
leave(KEYS[1], ARGV[2])
return new
