-- Takes the next number of a writer, for a chain that has later ones, too: a copy of the chain that comes
-- when these were taken ends here, for as long as the shard knows of the writer.
--
-- KEYS  those of ledger/includes/shard.lua
-- ARGV  1 spouts, 2 writer, 3 sequence
-- Returns "1"; empty, where later numbers were taken.
--- @chained reply == '1'
--- @include "ledger/includes/shard"
--- @include "ledger/includes/once"
return finish('1')
