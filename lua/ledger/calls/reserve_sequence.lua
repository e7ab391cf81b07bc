-- Takes the next number of a writer, for a chain that takes further numbers: a copy of the chain that comes
-- after these were taken ends here, while the shard remembers the writer.
--
-- KEYS  keys of ledger/includes/shard.lua
-- ARGV  1 spouts, 2 writer, 3 sequence
-- Returns "1"; empty if later numbers were taken.
--- @chained reply == '1'
--- @include "ledger/includes/shard"
--- @include "ledger/includes/once"
return finish('1')
