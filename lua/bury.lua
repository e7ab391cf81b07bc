-- Makes a record a dead letter and settles its tree, in one step.
--
-- KEYS  the spout's (includes/kept.lua), then dead, stream: the spout's dead letters, then rows, string
-- ARGV  1 slab, 2 index (u16), 3 ... fields and values of the dead letter
-- Returns its id; '' where the tree was settled before. How many there may be is the settler's to see to.
--- @include "kept"
local dead, rows, slab = KEYS[OWN], KEYS[OWN + 1], ARGV[1]
local index = struct.unpack('<I2', ARGV[2])
local mask = call('HGET', MASKS, slab)
if call('HEXISTS', SLABS, slab) == 0 or mask and sub(mask, index + 1, index + 1) == '\1' then return '' end
local id = call('XADD', dead, '*', unpack(ARGV, 3))
settle(slab, ARGV[2], rows)
call('HINCRBY', COUNTS, 'dead', 1)
return id
