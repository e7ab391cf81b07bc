-- Unreadable records, left by a newer version or by hand, count as missing: they are dropped, counted, and
-- named in the reply, for the log. The spout's own timer reports their trees.
-- @needs shard, id_pieces
local unreadable = {names = {}}

-- Counts a record, and names it: a slab, or the id of an entry.
function unreadable.add(name)
  unreadable.names[#unreadable.names + 1] = sub(name, 1, 100)
  counters.add('unreadable', 1)
end

-- The number of trees of a slab with an unreadable header, by its message ids: there are that many lengths,
-- and the bytes of all, and nothing else. nil if the message ids do not give it. At most 4,096 steps.
local function count_in(packed)
  local bytes = 0
  for n = 1, math.min(SLAB_TREES, floor(#packed / 2)) do
    bytes = bytes + unpack_from('<I2', packed, 2 * n - 1)
    if 2 * n + bytes == #packed then return n end
  end
end

function unreadable.count(slab)
  local packed, full = call('HGET', MESSAGE_IDS, slab), 0
  if packed ~= '' then return count_in(packed or '') end
  while full < id_pieces.MOST - 1 and call('HEXISTS', MESSAGE_IDS, id_pieces.field(slab, full + 1)) == 1 do
    full = full + 1
  end
  local rest = count_in(call('HGET', MESSAGE_IDS, id_pieces.field(slab, full)) or '')
  return rest and id_pieces.TREES * full + rest
end
