-- Settles trees with a handled outcome: rows of roots that are all settled are dropped.
--
-- KEYS  keys of streams/includes/kept.lua, then
--       ... rows  string, of each id that is named
-- ARGV  1 how     acked, replayed, or dead (without dead letters): the count to raise
--       ... slab, indexes, rows  of each slab: its indexes (u16 each, ascending; empty: all), and the number
--               of its rows in KEYS, from 0
-- Returns the number of newly settled trees.
-- Bounded by the caller: at most 100 slabs, and 4,096 indexes, or the indexes of one slab, a call.
--- @chained true
--- @include "streams/includes/kept"
local n = 0
for i = 2, #ARGV, 3 do n = n + settle(ARGV[i], ARGV[i + 1], KEYS[OWN + tonumber(ARGV[i + 2])]) end
if n > 0 then raise(COUNTS, ARGV[1], n) end
return n
