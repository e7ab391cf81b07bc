-- Notes a stream among the streams of its topology.
--
-- KEYS  1 streams  set
-- ARGV  1 name
--       2 config   key of the topology's configuration
--       3 removals, 4 seen, 5 named  (store/includes/owned.lua)
-- Returns 1 for a new stream, otherwise 0. An error ACKER LATE if the topology was removed since.
--- @include "store/includes/owned"
local refused = removed_since(ARGV[3], ARGV[4])
if refused then return refused end
local new = redis.call('SADD', KEYS[1], ARGV[1])
note_named(ARGV[5])
leave(KEYS[1], ARGV[2])
return new
