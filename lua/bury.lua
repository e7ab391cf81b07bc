-- Makes a record a dead letter and settles its tree, in one step.
--
-- KEYS  the spout's (includes/kept.lua), then dead, stream: the spout's dead letters, then rows, string
-- ARGV  1 limit of dead letters, 2 slab, 3 index (u16), 4 ... fields and values of the dead letter
-- Returns its id; '' where the tree was settled before; 'full' where there are so many: nothing has changed.
--- @include "kept"
local dead, rows, slab = KEYS[OWN], KEYS[OWN + 1], ARGV[2]
local index = struct.unpack('<I2', ARGV[3])
local mask = call('HGET', MASKS, slab)
if call('HEXISTS', SLABS, slab) == 0 or mask and sub(mask, index + 1, index + 1) == '\1' then return '' end
if call('XLEN', dead) >= tonumber(ARGV[1]) then return 'full' end
local id = call('XADD', dead, '*', unpack(ARGV, 4))
settle(slab, ARGV[3], rows)
call('HINCRBY', COUNTS, 'dead', 1)
return id
