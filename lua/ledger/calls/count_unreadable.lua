-- Counts unreadable records that were passed over.
--
-- KEYS  keys of ledger/includes/shard.lua
-- ARGV  1 spouts, 2 writer, 3 sequence
--       4 records  their number
-- Returns "0".
--- @include "ledger/includes/shard"
--- @include "ledger/includes/once"
counters.add('unreadable', tonumber(ARGV[4]))
return finish('0')
