-- Settles trees whose outcome has been taken care of: rows of roots that are all settled are dropped.
--
-- KEYS  those of streams/includes/kept.lua, then
--       ... rows  string, of each token that is named
-- ARGV  1 how     acked, replayed, or dead, where nobody keeps dead letters: the count to raise
--       ... slab, indexes, rows  of each slab: its indexes (u16 each, ascending; empty: all), and the number
--               of its rows in KEYS, from 0
-- Returns how many trees were not settled before.
-- Bounded by the caller: at most 100 slabs, and 4,096 indexes, or those of one slab, a call.
--- @chained true
--- @include "streams/includes/kept"
local n = 0
for i = 2, #ARGV, 3 do n = n + settle(ARGV[i], ARGV[i + 1], KEYS[OWN + tonumber(ARGV[i + 2])]) end
if n > 0 then raise(COUNTS, ARGV[1], n) end
return n
