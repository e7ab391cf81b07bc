-- Tells whether trees of a slab are over, by what its shard holds now.
--
-- KEYS  1 slabs    hash (includes/shard.lua)
--       2 vector   the slab's ack vector
-- ARGV  1 name     of the slab
--       2 indexes  of the trees (u16 each)
-- Returns 1, or 0 where one is not over, or the shard does not know that the slab was tracked.
-- Bounded: 4,096 trees.
--- @chained reply == 1
local header = redis.call('HGET', KEYS[1], ARGV[1])
if not header or string.byte(header) ~= 2 then return 0 end
local vector = redis.call('GET', KEYS[2]) -- it goes when all are over
if not vector then return 1 end
local ZERO = string.rep('\0', 8)
for k = 1, #ARGV[2], 2 do
  local at = 8 * struct.unpack('<I2', ARGV[2], k)
  if string.sub(vector, at + 1, at + 8) ~= ZERO then return 0 end
end
return 1
