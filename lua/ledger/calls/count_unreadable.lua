-- Counts records that could not be read, and were passed over.
--
-- KEYS  those of ledger/includes/shard.lua
-- ARGV  1 spouts, 2 writer, 3 sequence
--       4 records  how many
-- Returns "0".
--- @include "ledger/includes/shard"
--- @include "ledger/includes/once"
counters.add('unreadable', tonumber(ARGV[4]))
return finish('0')
