-- Records the schema of a stream, if it still is the schema that the caller has read.
--
-- KEYS  1 schema    string
--       2 removals  string (store/includes/late.lua)
-- ARGV  1 seen      the schema that the caller has read; empty: none
--       2 new       the new schema
--       3 removals  as the caller has read it, or empty
--       4 until     ms of the server's clock
-- Returns the recorded schema; empty: none. An error ACKER LATE if the stream was removed since, or after
-- `until`.
--- @include "store/includes/late"
local stored = redis.call('GET', KEYS[1]) or ''
if stored ~= ARGV[1] then return stored end
local refused = late(KEYS[2], ARGV[3], ARGV[4])
if refused then return refused end
redis.call('SET', KEYS[1], ARGV[2])
return ARGV[2]
