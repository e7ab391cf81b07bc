-- Stages an external segment's vectors for a shard and a subscription: nothing is applied to any tree yet.
-- A hash that bits of early rows have made (receive.lua) is filled.
--
-- KEYS  1 staged  hash (lua/streams/includes/external.lua)
-- ARGV  1 ttl     seconds after which what is not emitted is gone; the hash has them, too
--       2 until   ms of the server's clock: what is not emitted and comes later is refused, because its rows
--                 are taken for old
--       ... field, value  of the hash
-- Returns 1; 0 where it is staged already: a copy of the call that comes late changes nothing; -1 where it
-- comes too late.
--- @chained reply ~= -1
local call = redis.call
local state = call('HGET', KEYS[1], 'state')
if state and not string.find(state, '0', 1, true) then return 0 end
local instant = call('TIME')
if instant[1] * 1000 + math.floor(instant[2] / 1000) > tonumber(ARGV[2]) then return -1 end
local there = call('EXISTS', KEYS[1]) == 1
if there and call('HDEL', KEYS[1], 'early') == 0 then return 0 end
-- Lua unpacks up to 8,000 values; bounded by the caller: a segment has 1,000 trees.
for first = 3, #ARGV, 1000 do
  call('HSET', KEYS[1], unpack(ARGV, first, math.min(first + 999, #ARGV)))
end
if there then call('EXPIRE', KEYS[1], ARGV[1], 'GT') else call('EXPIRE', KEYS[1], ARGV[1]) end
return 1
