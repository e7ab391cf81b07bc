-- Counts tuples that collectors have emitted into trees: other calls carry XORs, which tell no number.
--
-- KEYS  the shard's (includes/shard.lua)
-- ARGV  1 spouts, 2 writer, 3 sequence
--       4 how many tuples
-- Returns "".
--- @include "shard"
--- @include "once"
counters.add('emitted', tonumber(ARGV[4]))
return finish('')
