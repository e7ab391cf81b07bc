-- Pauses a spout in a shard, or ends its pause there.
--
-- KEYS  keys of ledger/includes/shard.lua
-- ARGV  1 spouts, 2 writer, 3 sequence
--       4 spout   name
--       5 record  of the pause (acker/ledger/settings/pauses.py); empty to end it
-- Returns 1.
--- @include "ledger/includes/shard"
--- @include "ledger/includes/once"
local field = 'paused:' .. ARGV[4]
if ARGV[5] == '' then call('HDEL', COUNTERS, field) else call('HSET', COUNTERS, field, ARGV[5]) end
return finish('1')
