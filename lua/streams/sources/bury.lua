-- Makes a record a dead letter and settles its tree, in one step.
--
-- KEYS  keys of streams/includes/kept.lua, then
--       1 dead      stream: the facts of each dead letter
--       2 letters   hash: id of a dead letter -> record of its roots, and its row
--       3 rows      string
-- ARGV  1 slab
--       2 index     u16
--       3 record    of the roots, and the row
--       ... field, value    of the facts
-- Returns its id; '' if the tree was settled before. The settler bounds the number of dead letters.
--- @chained true
--- @include "streams/includes/kept"
local dead, letters, rows, slab = KEYS[OWN], KEYS[OWN + 1], KEYS[OWN + 2], ARGV[1]
local index = struct.unpack('<I2', ARGV[2])
local mask = call('HGET', MASKS, slab)
if call('HEXISTS', SLABS, slab) == 0 or mask and sub(mask, index + 1, index + 1) == '\1' then return '' end
local id = call('XADD', dead, '*', unpack(ARGV, 4))
call('HSET', letters, id, ARGV[3])
settle(slab, ARGV[2], rows)
raise(COUNTS, 'dead', 1)
return id
