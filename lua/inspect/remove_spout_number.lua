-- Frees the number of a spout without trees in flight, whose outcomes are all confirmed.
--
-- KEYS  keys of ledger/includes/shard.lua, then
--       1 outcomes  stream of the spout
-- ARGV  1 spouts
--       2 spout     name
-- Returns its number of trees in flight or unconfirmed; at 0 the number is free now.
--- @include "ledger/includes/shard"
local stream, number = KEYS[OWN], spouts.numbers[ARGV[2]]
if not number then return 0 end
local held = math.max(tonumber(call('HGET', COUNTERS, 'outstanding:' .. number)) or 0, call('XLEN', stream))
if held > 0 then return held end
local count, made = string.match(registry, '^(%d+),(%d+)')
local left = {}
for other, name in string.gmatch(registry, '/(%d+):([^/]+)') do -- bounded: by MOST_SPOUTS of track.lua
  if name ~= ARGV[2] then left[#left + 1] = '/' .. other .. ':' .. name end
end
call('HSET', CLOCK, 'spouts', (count - 1) .. ',' .. made .. table.concat(left))
call('HDEL', COUNTERS, 'outstanding:' .. number)
call('UNLINK', stream)
return 0
