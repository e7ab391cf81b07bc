-- Resets the timeout of slabs: they go back to the nursery. The unit is the slab.
--
-- KEYS  keys of ledger/includes/shard.lua, then
--       ... vector  of each slab; no slab twice
-- ARGV  1 spouts, 2 writer, 3 sequence
--       4 counts    u16 for each slab: the number of its indexes
--       5 indexes   u16 each
-- Returns the number of moved slabs, and after that the refused slabs, 16 hexadecimal digits each:
--       their record cannot be read. A slab none of whose named trees is pending or waiting stays.
-- Bounded by the caller: at most 100 trees a call, because each may be in a slab of 4,096.
--- @include "ledger/includes/shard"
--- @include "ledger/includes/once"
--- @include "ledger/includes/nursery"
local counts, indexes = ARGV[4], ARGV[5]
local moved, n = 0, 0
for k = 1, #counts / 2 do
  local key = KEYS[OWN + k - 1]
  local slab = slabs.name(key)
  local header = call('HGET', SLABS, slab)
  local facts = header and slabs.facts(header)
  local alive = facts and not facts.tracked
  if header and not facts then slabs.refuse(slab) end
  for _ = 1, (unpack_from('<I2', counts, k * 2 - 1)) do
    n = n + 1
    if facts and not alive then
      alive = vectors.word(key, slab, (unpack_from('<I2', indexes, n * 2 - 1))) ~= ZERO
    end
  end
  if alive then
    nursery.enter(key, slab, header, facts)
    moved = moved + 1
  end
end
slabs.flush()
return finish(moved .. slabs.refusals)
