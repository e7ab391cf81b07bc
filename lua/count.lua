-- Raises a counter of the shard: of tuples that collectors have emitted into trees, for other calls carry
-- XORs, which tell no number; or of records that could not be read.
--
-- KEYS  the shard's (includes/shard.lua)
-- ARGV  1 spouts, 2 writer, 3 sequence
--       4 counter   emitted or unreadable
--       5 by
-- Returns "".
--- @include "shard"
--- @include "once"
counters.add(ARGV[4], tonumber(ARGV[5]))
return finish('')
