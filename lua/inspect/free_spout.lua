-- Frees the number of a spout that owes nothing: no trees of its are in flight, all outcomes are confirmed.
--
-- KEYS  those of ledger/includes/shard.lua, then
--       1 outcomes  stream of the spout
-- ARGV  1 spouts
--       2 spout     name
-- Returns how many trees it owes: where there are none it is free by now.
--- @include "ledger/includes/shard"
local stream, number = KEYS[OWN], spouts.number(ARGV[2])
if not number then return 0 end
local owed = math.max(tonumber(call('HGET', COUNTERS, 'held:' .. number)) or 0, call('XLEN', stream))
if owed > 0 then return owed end
local count, made = string.match(registry, '^(%d+),(%d+)')
local left = {}
for other, name in string.gmatch(registry, '/(%d+):([^/]+)') do -- bounded: by MOST_SPOUTS of track.lua
  if name ~= ARGV[2] then left[#left + 1] = '/' .. other .. ':' .. name end
end
call('HSET', CLOCK, 'spouts', (count - 1) .. ',' .. made .. table.concat(left))
call('HDEL', COUNTERS, 'held:' .. number)
call('UNLINK', stream)
return 0
